package portal

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"strings"
	"testing"
)

// TestVersions: each vendored file is the one that VERSIONS.md names, and there are no others.
func TestVersions(t *testing.T) {
	list, err := assetFiles.ReadFile("assets/VERSIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	sums, packages := map[string]string{}, 0
	for lines := bufio.NewScanner(bytes.NewReader(list)); lines.Scan(); {
		cells := strings.Split(lines.Text(), " | ")
		switch {
		case strings.HasPrefix(lines.Text(), "| vendor/") && len(cells) == 2:
			sums[strings.TrimPrefix(cells[0], "| ")] = strings.TrimSuffix(cells[1], " |")
		case len(cells) == 4 && strings.HasPrefix(cells[3], "sha512-"):
			packages++
		}
	}
	if packages < 3 {
		t.Errorf("%d packages are named", packages)
	}
	err = fs.WalkDir(assetFiles, "assets/vendor", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := assetFiles.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		name = strings.TrimPrefix(name, "assets/")
		if want := sums[name]; want != hex.EncodeToString(sum[:]) {
			t.Errorf("%s has the sum %x; the list says %q", name, sum, want)
		}
		delete(sums, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range sums {
		t.Errorf("%s is named and not there", name)
	}
}
