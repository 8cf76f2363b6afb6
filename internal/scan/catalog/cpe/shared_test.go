package cpe

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

var (
	criteria = regexp.MustCompile(`cpe:2\.3:[aoh]:((?:[^":\\]|\\.)+):((?:[^":\\]|\\.)+):`)
	escaped  = regexp.MustCompile(`\\(.)`)
)

// named collects every vendor:product in the records of an archive.
func named(t *testing.T, archive string, into map[string]bool) {
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for r := tar.NewReader(z); ; {
		_, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), `\\`, `\`) // of JSON
		for _, m := range criteria.FindAllStringSubmatch(text, -1) {
			into[escaped.ReplaceAllString(m[1]+":"+m[2], "$1")] = true
		}
	}
}

// Each line of the table names a product in the records, except for those that are marked as older;
// an unneeded mark must be removed.
func TestTableNamesWhatNVDNames(t *testing.T) {
	shared := os.Getenv("SHARED")
	if shared == "" {
		t.Skip("SHARED is not set: the records of NVD are not in the repository")
	}
	names := map[string]bool{}
	for _, a := range []string{"nvd-overrides.tar.zst", "vulnrichment.tar.zst"} {
		named(t, filepath.Join(shared, "data/vuln", a), names)
	}
	if len(names) < 10_000 {
		t.Fatalf("only %d products were read", len(names))
	}
	for line := range strings.Lines(productsTSV) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if strings.HasPrefix(line, "#") {
			continue
		}
		found := false
		if f[2] == noProduct {
			continue
		}
		for pair := range strings.SplitSeq(f[2], ",") {
			parts := strings.SplitN(pair, ":", 3)
			found = found || names[parts[0]+":"+parts[1]]
		}
		if older := len(f) == 4 && f[3] == "older"; found == older {
			t.Errorf("%s %s: %s; in the records: %v", f[0], f[1], f[2], found)
		}
	}
}
