package archtest

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	architecture   = "ARCHITECTURE.md"
	componentTable = "## Components"
	largeTable     = "### Packages above 30 files or 4,000 lines"
	packageFiles   = 30 // Go files of a package that needs no reason, tests not counted
	packageLines   = 4000
)

// quoted matches text between backticks.
var quoted = regexp.MustCompile("`([^`]*)`")

// tableRow is a row of a table: the directories that its first column names, and the names in the others.
type tableRow struct{ dirs, names []string }

// rowsBelow returns the rows of the first table below a heading of a document.
func rowsBelow(text, heading string) []tableRow {
	_, text, _ = strings.Cut(text, "\n"+heading+"\n")
	var out []tableRow
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			break
		}
		if cells := strings.SplitN(strings.TrimPrefix(line, "|"), "|", 2); len(cells) == 2 {
			out = append(out, tableRow{quotedIn(cells[0]), quotedIn(cells[1])})
		}
	}
	return out
}

func quotedIn(text string) []string {
	var out []string
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		out = append(out, strings.TrimSuffix(match[1], "/"))
	}
	return out
}

// covers reports whether a row is about a package: it names its directory, or that of a parent and the path below it.
// A package for tests is in the row of its parent.
func (r tableRow) covers(dir string) bool {
	return slices.ContainsFunc(r.dirs, func(parent string) bool {
		below, isBelow := strings.CutPrefix(dir, parent+"/")
		return dir == parent || isBelow && slices.Contains(r.names, below)
	}) || strings.HasSuffix(dir, "test") && r.covers(path.Dir(dir))
}

// checkArchitecture lists packages without a row, large ones without a reason, and reasons of packages that are
// smaller than nine tenths of the limits.
func checkArchitecture(t *tree) ([]string, error) {
	data, err := fs.ReadFile(t.fsys, architecture)
	if err != nil {
		return nil, fmt.Errorf("read the architecture: %w", err)
	}
	files, lines := map[string]int{}, map[string]int{}
	for _, f := range t.files {
		if !f.test {
			files[f.dir]++
			lines[f.dir] += f.lines
		}
	}
	components := rowsBelow(string(data), componentTable)
	reasons := map[string]bool{}
	for _, r := range rowsBelow(string(data), largeTable) {
		for _, dir := range r.dirs {
			reasons[dir] = true
		}
	}

	var out []string
	for _, dir := range slices.Sorted(maps.Keys(files)) {
		covers := func(r tableRow) bool { return r.covers(dir) }
		if strings.HasPrefix(dir, "internal/") && !slices.ContainsFunc(components, covers) {
			out = append(out, dir+" is in no row of the components")
		}
		if !reasons[dir] && (files[dir] > packageFiles || lines[dir] > packageLines) {
			out = append(out, fmt.Sprintf("%s has %d files and %d lines and no reason to be large", dir, files[dir],
				lines[dir]))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(reasons)) {
		if files[dir] <= packageFiles*9/10 && lines[dir] <= packageLines*9/10 {
			out = append(out, fmt.Sprintf("%s has %d files and %d lines and a reason to be large", dir, files[dir],
				lines[dir]))
		}
	}
	return out, nil
}

func TestArchitecture(t *testing.T) {
	found, err := checkArchitecture(theTree(t))
	if err != nil {
		t.Fatal(err)
	}
	report(t, architecture+" has every package, and says why the large ones are one package each", found)
}

func TestArchitectureRuleCatches(t *testing.T) {
	files := map[string]string{
		architecture: "# A\n" + componentTable + "\n\n| package | responsibility |\n|---|---|\n" +
			"| `api/`, `internal/a/` | it has `b` and `c/d` |\n\n" +
			largeTable +
			"\n\n| package | why |\n|---|---|\n| `internal/a/` | it |\n| " +
			"`test/gone/` | it |\n| `internal/a/b/` | it |\n\n## Other\n| `internal/e/` | no |\n",
		"internal/a/a.go":         "package a\n" + strings.Repeat("\n", packageLines),
		"internal/a/b/b.go":       "package b\n",
		"internal/a/b/btest/b.go": "package btest\n",
		"internal/a/c/c.go":       "package c\n",
		"internal/a/c/d/d.go":     "package d\n",
		"internal/e/e.go":         "package e\n",
		"internal/e/e_test.go":    "package e\n" + strings.Repeat("\n", packageLines),
		"internal/etest/e.go":     "package etest\n",
	}
	for i := range packageFiles + 1 {
		files[fmt.Sprintf("test/x/x%d.go", i)] = "package main\n"
	}
	got, err := checkArchitecture(small(t, files))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got,
		"internal/a/c is in no row of the components",
		"internal/e is in no row of the components",
		"internal/etest is in no row of the components",
		"test/x has 31 files and 31 lines and no reason to be large",
		"internal/a/b has 1 files and 1 lines and a reason to be large",
		"test/gone has 0 files and 0 lines and a reason to be large")
}
