// Package layouttest makes large storages for tests and measurements.
//
// It is not a way to push: nothing is synced, and the layer files are empty.
//
// Invariant: a registry opens what it makes without a finding of damage.
package layouttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/layout"
)

// Shape says how large a storage is.
type Shape struct {
	Templates int
	Versions  int // of each template, each with one disk
	Depth     int // most layers of a disk; the chain of a version is that of the one before and one more
}

// Fill makes the templates of a shape below base, with empty layer files.
func Fill(base string, s Shape) error {
	for _, dir := range []string{layout.VMDir, layout.ImagesDir} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			return err
		}
	}
	for i := range s.Templates {
		if err := s.template(base, i); err != nil {
			return fmt.Errorf("make template %d: %w", i, err)
		}
	}
	return nil
}

func (s Shape) template(base string, i int) error {
	t := layout.Template{Schema: layout.Schema, ID: ID(i), Name: fmt.Sprintf("template %d", i), Arch: "arm64", Gen: int64(s.Versions + 1)}
	var chain []layout.Layer
	for n := range s.Versions {
		l := layout.Layer{Root: fmt.Sprintf("%032x%032x", i+1, n), Size: 1 << 20, IndexOffset: 1<<20 - 1064, IndexLength: 1000}
		if chain = append(chain, l); len(chain) > s.Depth {
			chain = []layout.Layer{l}
		}
		if err := os.WriteFile(filepath.Join(base, layout.ImagesDir, l.FileName()), nil, 0o600); err != nil {
			return err
		}
		t.Versions = append(t.Versions, layout.Version{
			Tag: fmt.Sprintf("v%d", n), Number: n, ContentID: fmt.Sprintf("%064x", i*s.Versions+n), Arch: t.Arch,
			Created: 1_700_000_000, LastPush: 1_700_000_000 + int64(n),
			Files: []layout.File{{Name: "disk.img", Kind: layout.Disk, Format: "raw", Size: 64 << 30, Layers: append([]layout.Layer{}, chain...)}},
		})
	}
	if err := t.Validate(); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return err
	}
	dir := filepath.Join(base, layout.VMDir, t.ID)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "template.json"), raw, 0o600)
}

// ID is the id of the template with a number.
func ID(i int) string { return fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012x", i) }
