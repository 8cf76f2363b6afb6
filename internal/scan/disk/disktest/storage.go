package disktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

// Template describes a template to write: each version is a disk, of which the changes to the one
// before are a layer.
type Template struct {
	ID       string
	Versions []string // raw files
	Format   string   // "raw"; a file of another one, or of "", is stored unchanged
	AuxName  string   // of a second disk with the same content; "": there is none
	Config   string   // configuration of each version, as JSON; "": versions have no directory
}

// WriteTemplate adds a template to a storage. Its tags are v0, v1 and so on.
func WriteTemplate(ctx context.Context, base string, t Template) error {
	for _, dir := range []string{layout.TemplatesDir + "/" + t.ID, layout.ImagesDir} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			return err
		}
	}
	out := layout.Template{Schema: layout.Schema, ID: t.ID, Name: "test", Gen: 1}
	w := writer{base: base}
	for n, file := range t.Versions {
		if err := w.add(ctx, file, t.Format); err != nil {
			return fmt.Errorf("version %d: %w", n, err)
		}
		v := layout.Version{
			Tag: fmt.Sprintf("v%d", n), Number: n, ContentID: strings.Repeat("0", 63) + fmt.Sprint(n), Created: 1,
			LastPush: 1,
		}
		for _, name := range []string{"disk.img", t.AuxName} {
			if name != "" {
				v.Files = append(v.Files, layout.File{
					Name: name, Kind: layout.KindDisk, Format: t.Format, Size: w.size,
					Layers: append([]layout.Layer{}, w.layers...),
				})
			}
		}
		out.Versions = append(out.Versions, v)
		if err := t.writeConfig(base, &v); err != nil {
			return err
		}
	}
	if err := out.Validate(); err != nil {
		return err
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(base, layout.TemplatesDir, t.ID, "template.json"), raw, 0o600)
}

// writeConfig writes the directory of a version that has a configuration.
func (t Template) writeConfig(base string, v *layout.Version) error {
	if t.Config == "" {
		return nil
	}
	dir, err := layout.Open(base)
	if err != nil {
		return err
	}
	err = dir.StageVersion(t.ID, v, []byte(t.Config), nil)
	if err == nil {
		err = dir.CommitVersion(t.ID, v)
	}
	return errors.Join(err, dir.Close())
}

type writer struct {
	base   string
	layers []layout.Layer
	before *os.File
	tip    blob.Digest
	size   int64
}

// add writes the layer of a file.
func (w *writer) add(ctx context.Context, name, format string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	before := blob.FileSource{File: w.before, Size: w.size}
	now := blob.FileSource{File: f, Size: st.Size()}
	out, err := os.CreateTemp(filepath.Join(w.base, layout.ImagesDir), "new")
	if err != nil {
		return err
	}
	defer out.Close()
	sink := func(_ blob.Frame, _ int64, stored []byte) error { _, err := out.Write(stored); return err }
	o := blob.EncodeOptions{Kind: blob.KindDisk, Size: st.Size(), Parent: w.tip}
	var x *blob.Index
	switch {
	case format != "raw":
		o.Kind = blob.KindFile
		x, err = blob.Encode(ctx, now, o, sink)
	case len(w.layers) == 0:
		x, err = blob.Encode(ctx, now, o, sink)
	default:
		x, err = blob.EncodeChanges(ctx, blob.Compare(now, before, st.Size()), o, sink)
	}
	if err != nil {
		return err
	}
	if _, err := out.Write(x.IndexAndFooter()); err != nil {
		return err
	}
	foot := x.Footer()
	l := layout.Layer{
		Digest: foot.Digest.String(), Size: x.FileSize(), IndexOffset: foot.IndexOffset,
		IndexLength: foot.IndexLength,
	}
	w.layers, w.before, w.tip, w.size = append(w.layers, l), f, x.ChainID(), st.Size()
	return os.Rename(out.Name(), filepath.Join(w.base, layout.ImagesDir, l.FileName()))
}
