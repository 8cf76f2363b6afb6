package portal

import (
	"net/http"
	"strings"
	"testing"
)

func TestMarkRows(t *testing.T) {
	const page = `<table><tr><th>Name</th></tr><tbody><tr id="a" class="x"><td>one <time title="t">3 s</time></td></tr>` +
		`<tr id="b"><td>two</td></tr></tbody></table>`
	marked := string(markRows([]byte(page), nil))
	if strings.Count(marked, "data-mark=") != 2 || strings.Contains(marked, "data-same") {
		t.Fatalf("a page that has no rows gets %s", marked)
	}
	mark := func(page, id string) string {
		_, rest, _ := strings.Cut(page, `<tr id="`+id+`" data-mark="`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	known := map[string]bool{mark(marked, "a"): true}
	later := strings.Replace(page, "3 s", "4 s", 1)
	got := string(markRows([]byte(later), known))
	if !strings.Contains(got, `<tr id="a" data-mark="`+mark(marked, "a")+`" data-same></tr><tr id="b"`) {
		t.Errorf("a row that only aged is sent again: %s", got)
	}
	if !strings.Contains(got, "<td>two</td>") || !strings.HasPrefix(got, "<table><tr><th>Name</th></tr>") {
		t.Errorf("a row that the page lacks is left out: %s", got)
	}
	changed := string(markRows([]byte(strings.Replace(later, "one", "uno", 1)), known))
	if !strings.Contains(changed, "uno") {
		t.Errorf("a changed row is left out: %s", changed)
	}
}

func TestKnownRowsAreBounded(t *testing.T) {
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	var marks strings.Builder
	for i := range 3 * maxKnownRows {
		marks.WriteString(strings.Repeat("x", i%7+1) + string(rune('a'+i%26)) + strings.Repeat("y", i/26) + " ")
	}
	r.Header.Set(headerRows, marks.String())
	if n := len(knownRows(r)); n > maxKnownRows {
		t.Errorf("%d marks are kept", n)
	}
}

func FuzzMarkRows(f *testing.F) {
	f.Add(`<tr id="a"><td><time datetime="x">1 s</time></td></tr>`)
	f.Add(`<tr id="a`)
	f.Add(`<tr id="a"><time </time></tr>`)
	f.Fuzz(func(t *testing.T, page string) {
		if got := string(markRows([]byte(page), nil)); len(got) < len(page) {
			t.Errorf("%q becomes %q", page, got)
		}
	})
}

// TestRowsWithActionsAreHeld: rows that have a button or a link to an action have an ID, and are in a table whose
// rows do not move under the pointer.
func TestRowsWithActionsAreHeld(t *testing.T) {
	files, err := pageFiles.ReadDir("templates")
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for _, f := range files {
		text, err := pageFiles.ReadFile("templates/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for i, part := range strings.Split(string(text), "<tbody") {
			rows, _, ended := strings.Cut(part, "</tbody>")
			hasAction := strings.Contains(rows, `{{template "act"`) || strings.Contains(rows, "data-dialog")
			if i == 0 || !ended || !hasAction {
				continue
			}
			held++
			if !strings.HasPrefix(rows, ` data-rows="`) || !strings.Contains(rows, `<tr id="`) {
				t.Errorf("%s: a table with actions has no data-rows, or its rows no ID: %.200s", f.Name(), rows)
			}
		}
	}
	if held < 6 {
		t.Errorf("only %d tables with actions were found", held)
	}
}
