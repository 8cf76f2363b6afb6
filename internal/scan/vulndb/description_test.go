package vulndb

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestDescriptionsComeBack(t *testing.T) {
	want := []Description{
		{ID: "CVE-2020-0001", Title: "A title", Text: "A text.", References: []string{"https://a.example/1"}},
		{ID: "CVE-2020-0002", Text: "Only a text."},
	}
	var m memory
	w, err := NewWriter(&m, time.Unix(1_700_000_000, 0))
	check(t, err)
	check(t, w.Vulnerability(Vulnerability{ID: "CVE-2020-0001"}))
	for _, d := range want {
		check(t, w.Description(d))
	}
	check(t, w.Close(nil))
	db, err := NewDB(bytes.NewReader(m.b), int64(len(m.b)))
	check(t, err)
	for _, d := range want {
		got, ok, err := db.Description(d.ID)
		if diff := cmp.Diff(d, got); diff != "" || !ok || err != nil {
			t.Errorf("%t, %v: %s", ok, err, diff)
		}
	}
	if _, ok, err := db.Description("CVE-2020-0003"); ok || err != nil {
		t.Errorf("of an unknown ID: %t, %v", ok, err)
	}
}

// TestNoDescriptions: a database of an earlier program has none.
func TestNoDescriptions(t *testing.T) {
	raw := write(t, some())
	db, err := NewDB(bytes.NewReader(raw), int64(len(raw)))
	check(t, err)
	db.trees[descriptionSection] = &tree{r: bytes.NewReader(raw), cache: newBlockCache()}
	if d, ok, err := db.Description("CVE-2020-0001"); ok || err != nil || !d.IsEmpty() {
		t.Errorf("%+v, %t, %v", d, ok, err)
	}
}

func TestTrimmed(t *testing.T) {
	d := Description{
		Title: " a\n b\t" + strings.Repeat("x", 300), Text: strings.Repeat("ä", 500) + "\xff",
		References: append([]string{
			"https://b.example", "https://a.example", "https://b.example", "ftp://c.example", "javascript:alert(1)",
			"https://d.example/\"><script>", "https://e.example/" + strings.Repeat("x", 300), "",
		}, strings.Fields(strings.Repeat("https://f.example/ ", 20))...),
	}.Trimmed()
	if len(d.Title) > 200 || !strings.HasPrefix(d.Title, "a b x") || !strings.HasSuffix(d.Title, "x...") {
		t.Errorf("title %q", d.Title)
	}
	if len(d.Text) > 600 || !strings.HasSuffix(d.Text, "ä...") || !utf8.ValidString(d.Text) {
		t.Errorf("text %q", d.Text)
	}
	want := []string{"https://a.example", "https://b.example", "https://f.example/"}
	if diff := cmp.Diff(want, d.References); diff != "" {
		t.Error(diff)
	}
	if !(Description{ID: "x"}).Trimmed().IsEmpty() {
		t.Error("nothing is not empty")
	}
}
