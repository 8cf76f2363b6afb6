// Package layouttest makes large storages for tests and measurements.
//
// It is not a way to push: nothing is synced, versions have no directories, and the layers hold no data.
//
// Invariant: a registry opens what it makes without finding damage.
package layouttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

// Shape is the size of a storage.
type Shape struct {
	Templates int
	Versions  int // of each template, each with one disk
	Depth     int // most layers of a disk; the chain of a version is that of the one before and one more
}

// Fill makes the templates of a shape below base.
func Fill(base string, s Shape) error {
	for _, dir := range []string{layout.TemplatesDir, layout.ImagesDir} {
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
	t := layout.Template{Schema: layout.Schema, ID: ID(i), Name: fmt.Sprintf("template %d",
		i), Arch: "arm64", Gen: int64(s.Versions + 1)}
	var chain []layout.Layer
	for n := range s.Versions {
		if len(chain) == s.Depth {
			chain = nil
		}
		l, err := layer(base, int64(i*s.Versions+n), chain)
		if err != nil {
			return err
		}
		chain = append(chain, l)
		t.Versions = append(t.Versions, layout.Version{
			Tag: fmt.Sprintf("v%d", n), Number: n, ContentID: fmt.Sprintf("%064x", i*s.Versions+n), Arch: t.Arch,
			Created: 1_700_000_000, LastPush: 1_700_000_000 + int64(n),
			Files: []layout.File{{
				Name: "disk.img", Kind: layout.KindDisk, Format: "raw", Size: 64 << 30,
				Layers: append([]layout.Layer{}, chain...),
			}},
		})
	}
	if err := t.Validate(); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return err
	}
	dir := filepath.Join(base, layout.TemplatesDir, t.ID)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "template.json"), raw, 0o600)
}

// layer makes a layer file that holds nothing, on top of a chain.
func layer(base string, number int64, chain []layout.Layer) (layout.Layer, error) {
	o := blob.EncodeOptions{Kind: blob.KindDisk, Size: (number + 1) * blob.BlockSize}
	if len(chain) > 0 {
		parent, err := blob.ParseDigest(chain[len(chain)-1].Digest)
		if err != nil {
			return layout.Layer{}, err
		}
		o.Parent = parent
	}
	x, err := blob.NewBuilder(o).Index()
	if err != nil {
		return layout.Layer{}, err
	}
	foot := x.Footer()
	l := layout.Layer{
		Digest: foot.Digest.String(), Size: x.FileSize(), IndexOffset: foot.IndexOffset,
		IndexLength: foot.IndexLength,
	}
	return l, os.WriteFile(filepath.Join(base, layout.ImagesDir, l.FileName()), x.IndexAndFooter(), 0o600)
}

// ID is the id of the template with a number.
func ID(i int) string { return fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012x", i) }
