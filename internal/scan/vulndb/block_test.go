package vulndb

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// earlierFile was built by a program of schema 1 from the feeds in feed/testdata and one more record.
const earlierFile = "testdata/schema-1.db"

// TestEarlierSchema: a database that an earlier program built has its records and descriptions.
func TestEarlierSchema(t *testing.T) {
	db, err := Open(earlierFile)
	check(t, err)
	defer db.Close()
	check(t, db.Verify(t.Context()))
	i := db.Info()
	counts := []int{i.Schema, i.Advisories, i.Vulnerabilities, i.Applicabilities, len(i.Sources)}
	if want := []int{1, 30, 31, 3, 19}; !slices.Equal(counts, want) {
		t.Errorf("%+v", i)
	}
	if n := len(all(t, db.AllAdvisories())); n != i.Advisories {
		t.Errorf("%d advisories", n)
	}
	id := "CVE-2019-10744"
	v, found, err := db.Vulnerability(id)
	if !found || err != nil || v.Score.Severity != Critical {
		t.Errorf("%+v, %v", v, err)
	}
	d, found, err := db.Description(id)
	want := Description{
		ID: id, Title: "Prototype pollution in lodash", Text: "Versions before 4.17.12 are affected.",
		References: []string{"https://example.org/advisory"},
	}
	if !found || err != nil || !cmp.Equal(d, want) {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestBlocks: leaves are compressed where that makes them smaller, and blocks above them never are.
func TestBlocks(t *testing.T) {
	z, err := newBlockEncoder()
	check(t, err)
	r, err := newBlockDecoder()
	check(t, err)
	for _, c := range []struct {
		level      int
		value      string
		compressed bool
	}{{0, strings.Repeat("value ", 100), true}, {0, "value", false}, {1, strings.Repeat("value ", 100), false}} {
		b := blockBuilder{level: c.level}
		b.add([]byte("key"), []byte(c.value))
		entries := bytes.Clone(b.entries)
		raw := b.finish(z)
		got := raw[checksumSize]&compressedBlock != 0
		if got != c.compressed || len(raw) > checksumSize+1+len(entries) {
			t.Errorf("%+v: compressed is %t, %d bytes", c, got, len(raw))
		}
		p, err := parseBlock(raw, r)
		check(t, err)
		if p.level != c.level || !cmp.Equal(p.entries, entries) {
			t.Errorf("%+v: level %d, entries %q", c, p.level, p.entries)
		}
	}
}

// TestBlockBomb: a block that decompresses to more than a block may have is damage.
func TestBlockBomb(t *testing.T) {
	z, err := newBlockEncoder()
	check(t, err)
	r, err := newBlockDecoder()
	check(t, err)
	raw := (&blockBuilder{entries: make([]byte, 100<<20)}).finish(z)
	if len(raw) > 100<<10 {
		t.Fatalf("%d bytes", len(raw))
	}
	_, err = parseBlock(raw, r)
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "decompress a block") {
		t.Errorf("got %v", err)
	}
}
