package archtest

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	decisions     = "docs/decisions/"
	decisionPages = 40
	decisionWords = 500 // of a page
)

var (
	// decisionName matches the file name of a page: its number and its title.
	decisionName = regexp.MustCompile(`^([0-9]{2})-[a-z0-9-]+\.md$`)
	// decisionParts are the headings of a page.
	decisionParts = []string{"## Context", "## Decision", "## Consequences", "## Measurements"}
)

// checkDecisions lists pages of decisions that are too long, lack a part or are missing in the index, and
// reports if there are too many of them.
func checkDecisions(t *tree) ([]string, error) {
	index, err := fs.ReadFile(t.fsys, decisions+"README.md")
	if err != nil {
		return nil, fmt.Errorf("read the index of decisions: %w", err)
	}
	var out []string
	pages := 0
	for _, name := range t.names {
		base := path.Base(name)
		number := decisionName.FindStringSubmatch(base)
		if path.Dir(name)+"/" != decisions || base == "README.md" {
			continue
		}
		if number == nil {
			out = append(out, name+": the name is not NN-title.md")
			continue
		}
		pages++

		data, err := fs.ReadFile(t.fsys, name)
		if err != nil {
			return nil, fmt.Errorf("read a decision: %w", err)
		}
		for _, problem := range decisionProblems(string(data), strings.TrimPrefix(number[1], "0"), base,
			string(index)) {
			out = append(out, name+": "+problem)
		}
	}
	if pages > decisionPages {
		out = append(out, fmt.Sprintf("%s has %d pages, the limit is %d", decisions, pages, decisionPages))
	}
	return out, nil
}

// decisionProblems lists what is wrong with one page. base is its file name, index the text of the index.
func decisionProblems(text, number, base, index string) []string {
	var out []string
	if words := len(strings.Fields(text)); words > decisionWords {
		out = append(out, fmt.Sprintf("%d words, the limit is %d", words, decisionWords))
	}
	lines := strings.Split(text, "\n")
	for _, part := range decisionParts {
		if !slices.Contains(lines, part) {
			out = append(out, fmt.Sprintf("no heading %q", part))
		}
	}
	title, ok := strings.CutPrefix(lines[0], "# "+number+". ")
	if !ok {
		return append(out, fmt.Sprintf("the first line is not \"# %s. Title\"", number))
	}
	if row := fmt.Sprintf("|%s|[%s](%s)|", number, title, base); !strings.Contains(index, row) {
		out = append(out, fmt.Sprintf("the index has no row that begins with %s", row))
	}
	return out
}

func TestDecisions(t *testing.T) {
	found, err := checkDecisions(theTree(t))
	if err != nil {
		t.Fatal(err)
	}
	report(t, "decisions are short, few and listed, since a maintainer reads all that concern a change", found)
}

func TestDecisionRuleCatches(t *testing.T) {
	const parts = "\n## Context\n## Decision\n## Consequences\n## Measurements\n"
	files := map[string]string{
		decisions + "README.md":    "|1|[One](01-one.md)|accepted|\n|2|[Another](02-two.md)|accepted|\n",
		decisions + "01-one.md":    "# 1. One\n" + parts,
		decisions + "02-two.md":    "# 2. Two\n" + parts,
		decisions + "03-three.md":  "# Three\n" + parts + strings.Repeat("word ", decisionWords),
		decisions + "04-four.md":   "# 4. Four\n## Context\n## Decision\n## Measurements\n",
		decisions + "0005-five.md": "# 5. Five\n" + parts,
		decisions + "six.md":       "# 6. Six\n" + parts,
	}
	got, err := checkDecisions(small(t, files))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got,
		decisions+"0005-five.md: the name is not NN-title.md",
		decisions+"02-two.md: the index has no row that begins with |2|[Two](02-two.md)|",
		decisions+"03-three.md: 510 words, the limit is 500",
		decisions+"03-three.md: the first line is not \"# 3. Title\"",
		decisions+"04-four.md: no heading \"## Consequences\"",
		decisions+"04-four.md: the index has no row that begins with |4|[Four](04-four.md)|",
		decisions+"six.md: the name is not NN-title.md")

	for i := range decisionPages + 1 {
		name := fmt.Sprintf("%02d-page.md", i+10)
		files[decisions+name] = fmt.Sprintf("# %d. Page\n%s", i+10, parts)
		files[decisions+"README.md"] += fmt.Sprintf("|%d|[Page](%s)|\n", i+10, name)
	}
	if got, err = checkDecisions(small(t, files)); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s has %d pages, the limit is %d", decisions, decisionPages+5, decisionPages)
	if last := got[len(got)-1]; last != want {
		t.Errorf("too many pages: %q", last)
	}
}
