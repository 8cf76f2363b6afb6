package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed rows.txt
var rowsText string

// row is one row of the contract.
type row struct{ id, gist string }

// ofAccess begins the ids of the rows that are met only with authentication.
const ofAccess = "4."

// loadRows reads rows.txt: an id, white space, and the gist of the row. A "#" begins a
// comment.
func loadRows(authenticated bool) ([]row, error) {
	var list []row
	seen := map[string]bool{}
	for line := range strings.Lines(rowsText) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, gist, ok := strings.Cut(line, " ")
		if gist = strings.TrimSpace(gist); !ok || gist == "" || seen[id] {
			return nil, fmt.Errorf("rows.txt: %q has no gist, or is there twice", line)
		}
		if seen[id] = true; !authenticated && strings.HasPrefix(id, ofAccess) {
			continue
		}
		list = append(list, row{id, gist})
	}
	return list, nil
}
