package feed

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/vulndb/input"
)

// FuzzFeeds passes bytes to every reader, as a file of its form.
func FuzzFeeds(f *testing.F) {
	err := filepath.WalkDir("testdata", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(p, "fuzz") {
			return err
		}
		b, err := os.ReadFile(p)
		f.Add(b)
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	kinds := []Kind{
		kindOSV, kindOSVYAML, kindRubySec, kindRustSec, kindNVD, kindOverride, kindCVE, kindKEV, kindEPSS,
		kindTracker,
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 64<<10 {
			return
		}
		for _, kind := range kinds {
			if kind == kindNVD || kind == kindKEV || kind == kindTracker {
				file := input.File{Name: "x", Reader: bufio.NewReader(bytes.NewReader(b))}
				_ = readFile(file, kind, func(it Item) error { judge(t, it); return nil })
			}
			judge(t, Item{Kind: kind, Name: "gems/x/x", Data: b})
		}
		fuzzEvents(b)
		for _, ext := range []string{".json", ".yaml", ".md", ".csv"} {
			recognizeFormat(ext, b)
		}
	})
}

// fuzzEvents sorts the events of a record in the order of each distribution.
func fuzzEvents(b []byte) {
	var o osvRecord
	if json.Unmarshal(b, &o) != nil {
		return
	}
	for _, a := range o.Affected {
		for _, r := range a.Ranges {
			for eco := range distributionSchemes {
				intervals(sortEvents(eco+":1", r.Events))
			}
		}
	}
}

// judge parses an item; a panic that Parse recovered from is a failure, too.
func judge(t *testing.T, it Item) {
	for _, r := range it.Parse() {
		for _, x := range r.Rejected {
			if strings.Contains(x.Reason, "broke its reader") {
				t.Errorf("%s: %s", it.Kind, x.Reason)
			}
		}
		for _, a := range r.Advisories {
			if a.ID == "" || a.Name == "" {
				t.Errorf("%s: an advisory without id or name: %+v", it.Kind, a)
			}
		}
	}
}

func FuzzRequirements(f *testing.F) {
	for _, s := range []string{">= 1.2.3", "~> 1.0.0.rc1.1, < 2", "^0.3", "1.*", "= 1.2", "<=4-a"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, s string) {
		if len(s) > 1000 {
			return
		}
		_, _ = affectedRanges(compareGemVersions, parseGemRequirement, []string{s})
		_, _ = affectedRanges(compareCargoVersions, parseCargoRequirement, []string{s})
		_, _, _, _ = CPEProduct(s)
	})
}
