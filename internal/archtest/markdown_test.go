package archtest

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	// fence matches the first and the last line of a block of code.
	fence = regexp.MustCompile("^\\s*(```|~~~)")
	// unbroken matches a heading, a row of a table, and a line that is only a list mark and a link.
	unbroken = regexp.MustCompile(`^\s*([#|]|([-*] |\d+\. )?!?\[[^\]]*\]\S*$|([-*] )?<?https?://\S+$)`)
)

// checkMarkdown lists the lines of documents over the limit. Tables, headings and links cannot be broken, and blocks
// of code are not. Pages made from the texts of the code are left out.
func checkMarkdown(t *tree) ([]string, error) {
	var out []string
	for _, name := range t.names {
		if path.Ext(name) != ".md" || isGenerated(name) || strings.Contains("/"+name, "/vendor/") {
			continue
		}
		data, err := fs.ReadFile(t.fsys, name)
		if err != nil {
			return nil, fmt.Errorf("read a document: %w", err)
		}
		n, isCode := 0, false
		for line := range strings.Lines(string(data)) {
			n++
			line = strings.TrimRight(line, "\r\n")
			if fence.MatchString(line) {
				isCode = !isCode
			}
			columns := utf8.RuneCountInString(line)
			if columns > columnLimit && !isCode && !unbroken.MatchString(line) {
				out = append(out, fmt.Sprintf("%s:%d has %d columns, the limit is %d", name, n, columns, columnLimit))
			}
		}
	}
	return out, nil
}

func TestMarkdown(t *testing.T) {
	found, err := checkMarkdown(theTree(t))
	if err != nil {
		t.Fatal(err)
	}
	report(t, "a line of a document is short enough to be compared with its former text", found)
}

func TestMarkdownRuleCatches(t *testing.T) {
	words, link := strings.Repeat("word ", 30), "https://example.test/"+strings.Repeat("x", columnLimit)
	got, err := checkMarkdown(small(t, map[string]string{
		"a.md": "# " + words + "\n" + words + "\n| " + words + " |\n```\n" + words + "\n```\n- " + words + "\n" +
			strings.Repeat("é", columnLimit) + "\n- [a link](" + link + ")\n" + link + "\nSee " + words + link + "\n",
		"docs/reference/cli.md": words + "\n",
		"a.txt":                 words + "\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, "a.md:2 has 150 columns, the limit is 120", "a.md:7 has 152 columns, the limit is 120",
		"a.md:11 has 295 columns, the limit is 120")
}
