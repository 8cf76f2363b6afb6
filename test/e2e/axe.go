package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
)

//go:embed axe
var axeFiles embed.FS

// checkAxe compares the files of others with their list.
func checkAxe() error {
	list, err := axeFiles.ReadFile("axe/VERSIONS.md")
	if err != nil {
		return err
	}
	n := 0
	for lines := bufio.NewScanner(bytes.NewReader(list)); lines.Scan(); {
		cells := strings.Split(strings.Trim(lines.Text(), "| "), " | ")
		if len(cells) != 2 || len(cells[1]) != 2*sha256.Size {
			continue
		}
		text, err := axeFiles.ReadFile("axe/" + cells[0])
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != cells[1] {
			return fmt.Errorf("axe/%s is not the file that VERSIONS.md names", cells[0])
		}
		n++
	}
	if n != 2 {
		return fmt.Errorf("axe/VERSIONS.md names %d files", n)
	}
	return nil
}

// axeRun runs the rules for WCAG 2.2 A and AA (also the size of targets) and good practice over a page, and returns a line per
// element that breaks one. The empty document that Firefox has between two pages is refused.
const axeRun = `!document.querySelector("main") || typeof axe === "undefined" ? Promise.reject(new Error("` + leftPage + `")) : axe.run(document, {resultTypes: ["violations"], rules: {"target-size": {enabled: true}}}).then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + " (" + v.impact + "): " + n.target.join(" ") + ": " + n.failureSummary.split("\n").slice(1, 2).join("").trim())))`
