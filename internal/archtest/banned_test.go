package archtest

import (
	_ "embed"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"testing"
)

//go:embed banned.tsv
var bannedTable string

var lower = flag.Bool("lower", false, "write how many lines and names still have a banned word, where they are "+
	"fewer than before")

// bannedWord is a word that texts for readers must not contain.
type bannedWord struct {
	source  string // the pattern as it is written in the table
	pattern *regexp.Regexp
	parts   []string // in lower case; every match contains one of them, so that few lines are searched
	instead string
	most    int // maximum number of lines that may still have it
	names   int // maximum number of declared names that may still have it
}

// parseBanned reads lines of pattern, replacement, and the counts of lines and of names, separated by tabs.
func parseBanned(table string) ([]bannedWord, error) {
	var out []bannedWord
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 4 {
			return nil, fmt.Errorf("%q: want pattern, replacement and two counts", line)
		}
		pattern, err := regexp.Compile("(?i)" + fields[0])
		if err != nil {
			return nil, fmt.Errorf("read a banned word: %w", err)
		}
		most, err := strconv.Atoi(fields[2])
		if err != nil {
			return nil, fmt.Errorf("read a banned word: %w", err)
		}
		names, err := strconv.Atoi(fields[3])
		if err != nil {
			return nil, fmt.Errorf("read a banned word: %w", err)
		}
		tree, err := syntax.Parse("(?i)"+fields[0], syntax.Perl)
		if err != nil {
			return nil, fmt.Errorf("read a banned word: %w", err)
		}
		out = append(out, bannedWord{fields[0], pattern, partsOf(tree), fields[1], most, names})
	}
	return out, nil
}

// partsOf returns texts of which every match of the expression contains one; nil if there are none.
func partsOf(e *syntax.Regexp) []string {
	switch e.Op {
	case syntax.OpLiteral:
		return []string{strings.ToLower(string(e.Rune))}
	case syntax.OpCapture, syntax.OpPlus:
		return partsOf(e.Sub[0])
	case syntax.OpConcat:
		var best []string
		for _, sub := range e.Sub {
			if parts := partsOf(sub); len(parts) > 0 && (best == nil || len(parts[0]) > len(best[0])) {
				best = parts
			}
		}
		return best
	case syntax.OpAlternate:
		var all []string
		for _, sub := range e.Sub {
			parts := partsOf(sub)
			if len(parts) == 0 {
				return nil
			}
			all = append(all, parts...)
		}
		return all
	}
	return nil
}

// prose is a line for human readers.
type prose struct {
	path string
	line int
	text string
	low  string // text in lower case
}

func (p prose) String() string { return fmt.Sprintf("%s:%d: %s", p.path, p.line, p.text) }

// allowed marks a line that may have a banned word, for example as the name of a wire field.
const allowed = "glossary:allow"

// code is text between backticks: identifiers, commands and wire names.
var code = regexp.MustCompile("`[^`]*`")

// proseOf returns the comments and string literals of non-test Go files and of the rules here, and the lines of
// other texts (isText).
func proseOf(t *tree) ([]prose, error) {
	var out []prose
	for _, f := range t.files {
		isRule := f.dir == "internal/archtest" && path.Base(f.path) != "banned_test.go"
		if !f.test || isRule {
			out = append(out, proseOfGo(t.fset, f)...)
		}
	}
	for _, name := range t.names {
		if !isText(name) || isGenerated(name) || strings.Contains("/"+name, "/testdata/") ||
			strings.Contains("/"+name, "/vendor/") || strings.HasSuffix(name, ".min.js") {
			continue
		}
		data, err := fs.ReadFile(t.fsys, name)
		if err != nil {
			return nil, fmt.Errorf("read a text: %w", err)
		}
		out = append(out, linesOf(name, 1, string(data))...)
	}
	return out, nil
}

// textExtensions are the extensions of files that are read as a whole.
var textExtensions = []string{".md", ".html", ".tmpl", ".sh", ".js", ".service", ".yml"}

// isText reports whether a file without Go code is read: templates, documents, scripts, units and settings of
// packages, the dashboard, the Makefile and the API description.
func isText(name string) bool {
	return slices.Contains(textExtensions, path.Ext(name)) || name == "api/openapi.yaml" || name == "Makefile" ||
		strings.HasPrefix(name, "scripts/") || path.Dir(name) == "packaging/grafana"
}

// isGenerated reports whether a page is made of texts of the code, which are counted there.
func isGenerated(name string) bool {
	return strings.HasPrefix(name, "docs/reference/") && path.Base(name) != "layer-format.md"
}

func linesOf(name string, first int, text string) []prose {
	var out []prose
	for line := range strings.Lines(text) {
		if !strings.Contains(line, allowed) {
			text := strings.TrimSpace(line)
			if strings.Contains(text, "`") {
				text = code.ReplaceAllString(text, "")
			}
			out = append(out, prose{name, first, text, strings.ToLower(text)})
		}
		first++
	}
	return out
}

func proseOfGo(fset *token.FileSet, f *source) []prose {
	free, tags := map[int]bool{}, map[*ast.BasicLit]bool{}
	var out []prose
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			line := fset.Position(c.Pos()).Line
			if free[line] = strings.Contains(c.Text, allowed); !free[line] {
				out = append(out, linesOf(f.path, line, c.Text)...)
			}
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			tags[n.Tag] = true
		case *ast.BasicLit:
			if n.Kind != token.STRING || tags[n] || free[fset.Position(n.Pos()).Line] {
				return true
			}
			if text, err := strconv.Unquote(n.Value); err == nil {
				for _, p := range linesOf(f.path, 0, text) {
					p.line = fset.Position(n.Pos()).Line
					out = append(out, p)
				}
			}
		}
		return true
	})
	return out
}

// having returns the lines that have a banned word.
func having(texts []prose, w bannedWord) []string {
	var out []string
	for _, p := range texts {
		has := func(part string) bool { return strings.Contains(p.low, part) }
		if (w.parts == nil || slices.ContainsFunc(w.parts, has)) && w.pattern.MatchString(p.text) {
			out = append(out, p.String())
		}
	}
	return out
}

func TestBannedWords(t *testing.T) {
	words, err := parseBanned(bannedTable)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := proseOf(theTree(t))
	if err != nil {
		t.Fatal(err)
	}
	names := namesOf(theTree(t))
	table := headOf(bannedTable)
	for _, w := range words {
		found, named := having(texts, w), having(names, w)
		table += fmt.Sprintf("%s\t%s\t%d\t%d\n", w.source, w.instead, min(len(found), w.most), min(len(named), w.names))
		if len(found) > w.most {
			report(t, fmt.Sprintf("%s: write %s; %d lines may still have it", w.source, w.instead, w.most), found)
		}
		if len(named) > w.names {
			report(t, fmt.Sprintf("%s: write %s; %d names may still have it", w.source, w.instead, w.names), named)
		}
	}
	if *lower {
		if err := os.WriteFile("banned.tsv", []byte(table), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// headOf returns the comment lines of a table.
func headOf(table string) string {
	var head strings.Builder
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "#") {
			head.WriteString(line)
		}
	}
	return head.String()
}

func TestBannedWordsCatch(t *testing.T) {
	tr := small(t, map[string]string{
		"a/a.go": "package a\n\n// F gives nobody `whoever`.\nfunc F() string { return \"nobody\" }\n\n" +
			"type T struct {\n\tA string `json:\"nobody\"`\n\tB int // nobody, glossary:allow\n}\n",
		"a/a_test.go":                 "package a\n\n// nobody\n",
		"internal/archtest/a_test.go": "package archtest\n\n// nobody\n",
		"docs/a.md":                   "Nobody\n`nobody`\n",
		"api/openapi.yaml":            "summary: for nobody\n",
		"Makefile":                    "a: ## for nobody\n",
		"scripts/a.sh":                "# nobody\n",
		"x/testdata/a.md":             "nobody\n",
		"x/a.js":                      "// nobody\n",
		"x/vendor/a.js":               "// nobody\n",
		"x/a.min.js":                  "// nobody\n",
		"packaging/grafana/a.json":    "\"nobody\"\n",
		"packaging/x.service":         "# nobody\n",
		"packaging/x.yml":             "# nobody\n",
		"x/a.json":                    "\"nobody\"\n",
	})
	words, err := parseBanned("# head\n\\bnobody\\b\tname the actor\t3\t2\n")
	if err != nil || len(words) != 1 || words[0].most != 3 || words[0].names != 2 {
		t.Fatalf("%+v, %v", words, err)
	}
	texts, err := proseOf(tr)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, having(texts, words[0]),
		"a/a.go:3: // F gives nobody .", "a/a.go:4: nobody", "internal/archtest/a_test.go:3: // nobody",
		"Makefile:1: a: ## for nobody", "api/openapi.yaml:1: summary: for nobody", "docs/a.md:1: Nobody",
		"packaging/grafana/a.json:1: \"nobody\"", "packaging/x.service:1: # nobody", "packaging/x.yml:1: # nobody",
		"scripts/a.sh:1: # nobody", "x/a.js:1: // nobody")
	for _, wrong := range []string{"a\tb\t1\n", "(\tb\t1\t1\n", "a\tb\tc\t1\n", "a\tb\t1\tc\n"} {
		if _, err := parseBanned(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
