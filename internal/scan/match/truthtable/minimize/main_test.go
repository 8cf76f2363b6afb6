package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/match/truthtable"
)

const carried = "../testdata"

// TestCarriedIsFresh compares the stored archives with the result from the current whole sets.
func TestCarriedIsFresh(t *testing.T) {
	dir := os.Getenv("SHARED")
	if dir == "" {
		t.Skip("SHARED does not name the folder with the whole sets of advisories")
	}
	for _, set := range truthtable.AdvisorySets {
		want, err := reduceSet(filepath.Join(dir, "data", "vuln"), set)
		if err != nil {
			t.Fatal(err)
		}
		var got []recordFile
		err = truthtable.ReadSet(carried, set, func(name string, data []byte) error {
			got = append(got, recordFile{name[len(set)+1:], data})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d records are carried, %d are needed: run reduce", set, len(got), len(want))
			continue
		}
		for i := range want {
			if got[i].name != want[i].name || !bytes.Equal(got[i].data, want[i].data) {
				t.Errorf("%s: %s is not what is made of it now: run reduce", set, want[i].name)
			}
		}
	}
}

// prose matches the keys of texts of the sources, or of links to them.
var prose = regexp.MustCompile(
	`(?m)"(summary|details|description|descriptions|references|title|notes|value)":|^ *(summary|details|description|references|title|url):|https?://`)

func TestCarriedIsFactsOnly(t *testing.T) {
	total := int64(0)
	for _, set := range truthtable.AdvisorySets {
		err := truthtable.ReadSet(carried, set, func(name string, data []byte) error {
			if at := prose.Find(data); at != nil {
				t.Errorf("%s holds %s", name, at)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(filepath.Join(carried, set+".tar.zst"))
		if err != nil {
			t.Fatal(err)
		}
		total += st.Size()
	}
	if total > 1<<20 {
		t.Errorf("%d bytes are carried", total)
	}
}

func TestTwoPacksAreTheSame(t *testing.T) {
	files := []recordFile{{"a/b.json", []byte("{}")}, {"c.json", bytes.Repeat([]byte("x"), 1<<16)}}
	a, err := packArchive(files)
	if err != nil {
		t.Fatal(err)
	}
	b, err := packArchive(files)
	if err != nil || !bytes.Equal(a, b) {
		t.Errorf("two packs of the same files differ (%v)", err)
	}
}
