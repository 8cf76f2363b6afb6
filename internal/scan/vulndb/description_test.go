package vulndb

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
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

// TestNoDescriptions: some databases of schema 1 have none.
func TestNoDescriptions(t *testing.T) {
	raw := write(t, some())
	db, err := NewDB(bytes.NewReader(raw), int64(len(raw)))
	check(t, err)
	if d, ok, err := db.Description("CVE-2020-0001"); ok || err != nil || !d.IsEmpty() {
		t.Errorf("%+v, %t, %v", d, ok, err)
	}
}

// TestManyDescriptions: every one of several blocks is found, and nothing else.
func TestManyDescriptions(t *testing.T) {
	var m memory
	w, err := NewWriter(&m, time.Unix(1_700_000_000, 0))
	check(t, err)
	check(t, w.Vulnerability(Vulnerability{ID: "CVE-2020-0001"}))
	describe := func(i int) Description {
		id := fmt.Sprintf("CVE-2020-%05d", i)
		return Description{ID: id, Title: "title of " + id, Text: strings.Repeat(fmt.Sprint(i*7919), 40)}
	}
	const count = 3000
	for i := 0; i < count; i += 2 {
		check(t, w.Description(describe(i)))
	}
	if err := w.Description(describe(0)); !errors.Is(err, errNotSorted) {
		t.Errorf("out of order: %v", err)
	}
	check(t, w.Close(nil))
	db, err := NewDB(bytes.NewReader(m.b), int64(len(m.b)))
	check(t, err)
	check(t, db.Verify(t.Context()))
	section := db.trees[descriptionSection]
	root, err := section.readBlock(section.root)
	check(t, err)
	if root.level == 0 || len(root.restartPoints) < 10 {
		t.Errorf("a root of level %d with %d blocks", root.level, len(root.restartPoints))
	}
	if size := section.root.offset - section.beginOffset; size > 200_000 {
		t.Errorf("%d descriptions take %d bytes", count/2, size)
	}
	for i := range count {
		got, ok, err := db.Description(describe(i).ID)
		if want := i%2 == 0; ok != want || err != nil || want && !cmp.Equal(got, describe(i)) {
			t.Errorf("%d: %+v, %t, %v", i, got, ok, err)
		}
	}
	for _, id := range []string{"", "A", "CVE-2020-", "CVE-2021-00001", "zzz"} {
		if d, ok, err := db.Description(id); ok || err != nil {
			t.Errorf("%q: %+v, %v", id, d, err)
		}
	}
}

// group returns a group of descriptions as files of schema 1 have it.
func group(t testing.TB, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriterDict(&b, flate.BestCompression, []byte(textDictionary))
	check(t, err)
	_, err = w.Write(raw)
	check(t, errors.Join(err, w.Close()))
	return b.Bytes()
}

// TestTextBomb: a group that decompresses to too much is damage.
func TestTextBomb(t *testing.T) {
	if _, _, err := findText(group(t, make([]byte, 10<<20)), "x"); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
}

func FuzzText(f *testing.F) {
	raw, err := Description{ID: "CVE-2020-0001", Title: "A title"}.AppendBinary(nil)
	check(f, err)
	f.Add(group(f, raw), "CVE-2020-0001")
	f.Add([]byte("x"), "")
	f.Fuzz(func(t *testing.T, b []byte, id string) {
		if d, ok, err := findText(b, id); ok && (d.ID != id || err != nil) {
			t.Errorf("%+v, %v", d, err)
		}
	})
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
