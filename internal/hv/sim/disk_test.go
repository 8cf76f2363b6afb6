package sim

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/qcow2"
)

// TestDisks: a guest has its files wherever its disk went: into a delta on any base, and from a
// registry into one flat file. A disk that no simulated guest wrote is empty.
func TestDisks(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	files := guestFiles{"/a": "1", "/b": strings.Repeat("x", 300_000)}
	if err := writeDisk(t.Context(), path("delta"), files); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path("delta"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	image, err := qcow2.Open(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, image.Size())
	if _, err := image.ReadAt(raw, 0); err != nil {
		t.Fatal(err)
	}
	long := append([]byte(diskMagic), 0xff, 0, 0, 0, 0, 0, 0, 0)
	for name, b := range map[string][]byte{"flat": raw, "text": []byte("any file"), "long": long} {
		if err := os.WriteFile(path(name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		disk hv.Disk
		want guestFiles
		fail bool
	}{
		"any file":  {hv.Disk{Path: path("text")}, guestFiles{}, false},
		"no file":   {hv.Disk{Path: path("none")}, guestFiles{}, false},
		"flat":      {hv.Disk{Path: path("flat")}, files, false},
		"a delta":   {hv.Disk{Path: path("text"), Deltas: []string{path("delta")}}, files, false},
		"none":      {hv.Disk{Path: path("text"), Deltas: []string{path("none")}}, nil, true},
		"no delta":  {hv.Disk{Path: path("flat"), Deltas: []string{path("text")}}, nil, true},
		"a bad one": {hv.Disk{Path: path("long")}, nil, true},
	} {
		got, err := readDisk(tt.disk)
		if (err != nil) != tt.fail || !maps.Equal(got, tt.want) {
			t.Errorf("%s: %d files, %v", name, len(got), err)
		}
	}
}
