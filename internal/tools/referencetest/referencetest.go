// Package referencetest compares the pages of docs/reference with the code that they describe. The
// test of the package that owns a page, or a section of it, builds the text from the code's own
// tables and passes it to Page or Section.
//
// It does not build any text, and a program never imports it. "go generate" in this package rewrites
// every page; a section is rewritten in place, and the text around it stays.
//
// Invariant: without -update a test only reads, and fails when a page differs from the code.
package referencetest

//go:generate go test -trimpath -p 1 -count 1 -run ^TestReference ../../config ../../farm ../../cli/buildyard ../../cli/buildnode ../../cli/imagescan ../../cli/hostscan ../../rest/controllerrest ../../rest/registryrest ../../rest/authrest ../../rest/hostrest -update

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the pages of docs/reference")

// Command rewrites the pages.
const Command = "go generate ./internal/tools/referencetest"

// Notice is the comment below the title of a page that is generated as a whole.
const Notice = "<!-- Generated from the code: " + Command + " -->"

// Page compares a page of docs/reference with its text.
func Page(t *testing.T, name string, want []byte) {
	t.Helper()
	compare(t, name, func([]byte) ([]byte, error) { return want, nil })
}

// Section compares one section of a page: the text between the heading "## heading" and the next
// heading of that level.
func Section(t *testing.T, name, heading, want string) {
	t.Helper()
	compare(t, name, func(page []byte) ([]byte, error) {
		return replaceSection(page, heading, strings.TrimSpace(want))
	})
}

func compare(t *testing.T, name string, edit func(page []byte) ([]byte, error)) {
	t.Helper()
	path := filepath.Join(root(t), "docs", "reference", name)
	got, err := os.ReadFile(path)
	if err != nil && !(*update && errors.Is(err, os.ErrNotExist)) {
		t.Fatal(err)
	}

	want, err := edit(got)
	if err != nil {
		t.Fatalf("docs/reference/%s: %v", name, err)
	}
	if bytes.Equal(got, want) {
		return
	}

	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("docs/reference/%s differs from the code (%s): run %s", name, difference(got, want), Command)
}

// replaceSection returns a page with another text below one of its headings.
func replaceSection(page []byte, heading, text string) ([]byte, error) {
	title := "\n## " + heading + "\n"
	before, rest, ok := strings.Cut(string(page), title)
	if !ok {
		return nil, fmt.Errorf("heading %q not found", "## "+heading)
	}
	after := ""
	if i := strings.Index("\n"+rest, "\n## "); i >= 0 {
		after = "\n" + rest[i:]
	}
	return []byte(before + title + "\n" + text + "\n" + after), nil
}

// difference describes the first line that differs.
func difference(got, want []byte) string {
	a, b := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d is %q, want %q", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(a), len(b))
}

// root returns the directory of the module.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("go.mod not found above the package")
		}
		dir = up
	}
}

// Cell returns a text for a cell of a table of Markdown.
func Cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.TrimSuffix(text, "."), "|", `\|`), "\n", " ")
}

// Route is a row of the routes of a service.
type Route struct {
	Pattern    string // method and path
	Permission string // or what takes its place
	Note       string
}

// access maps what takes the place of a permission to a text.
var access = map[string]string{
	"-": "no credential", "known": "any valid credential", "root": "root user only",
	"node": "credential of a node", "node-or-known": "credential of a node, or any other",
}

// Routes returns a table of routes in Markdown.
func Routes(routes []Route) string {
	var b strings.Builder
	b.WriteString("| route | needs | note |\n|---|---|---|\n")
	for _, r := range routes {
		needs, ok := access[r.Permission]
		if !ok {
			needs = "`" + r.Permission + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.ReplaceAll(r.Pattern, "{$}", ""), needs, r.Note)
	}
	return b.String()
}
