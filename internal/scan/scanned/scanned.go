package scanned

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
)

const (
	// maxVersions and maxBytes limit the entries on the disk; above, those that were scanned longest ago are removed.
	maxVersions = 10_000
	maxBytes    = 1 << 30
	// maxEntryBytes limits an entry on the disk, maxDataBytes what it decompresses to.
	maxEntryBytes = 64 << 20
	maxDataBytes  = 512 << 20

	suffix = ".version"
)

// Version is a scanned version of a template.
type Version struct {
	TemplateID, Tag, ContentID string
	Storage                    string // directory of the registry that it was read from
	Partial                    bool   // not all of it was read
	Packages                   []catalog.Package
}

// Name returns the name of the entry of a version.
func (v *Version) Name() string {
	sum := sha256.Sum256([]byte(v.TemplateID + "/" + v.ContentID))
	return hex.EncodeToString(sum[:])
}

// Versions is a directory of entries. It is safe for concurrent use, also by several processes.
type Versions struct{ dir string }

// Open returns the versions in a directory, which is created when the first one is saved.
func Open(dir string) *Versions { return &Versions{dir} }

// Save keeps a version, in place of an earlier scan of it. One that was read in part does not replace a whole one.
func (c *Versions) Save(v *Version) error {
	if v.Partial {
		if old, err := c.Load(v.Name()); err == nil && !old.Partial {
			return nil
		}
	}
	var plain bytes.Buffer
	if err := gob.NewEncoder(&plain).Encode(v); err != nil {
		return err
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	raw := z.EncodeAll(plain.Bytes(), nil)
	if plain.Len() > maxDataBytes || len(raw) > maxEntryBytes {
		return fmt.Errorf("its packages have %d bytes, above the limit of %d", plain.Len(), maxDataBytes)
	}
	if err := c.write(v.Name()+suffix, raw); err != nil {
		return err
	}
	return c.prune()
}

// write replaces a file.
func (c *Versions) write(name string, raw []byte) error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("create the directory of scan results: %w", err)
	}
	f, err := atomicfile.Create(filepath.Join(c.dir, name))
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(raw); err != nil {
		return err
	}
	return f.Commit()
}

// read returns a file of limited size.
func (c *Versions) read(name string, limit int64) ([]byte, error) {
	f, err := os.Open(filepath.Join(c.dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular() || st.Size() > limit:
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", f.Name(), limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// entries returns the files of versions, those that were scanned longest ago first.
func (c *Versions) entries() ([]fs.FileInfo, error) {
	list, err := os.ReadDir(c.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var infos []fs.FileInfo
	for _, e := range list {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && strings.HasSuffix(e.Name(), suffix) {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	return infos, nil
}

// Names returns the names of the entries.
func (c *Versions) Names() ([]string, error) {
	infos, err := c.entries()
	names := make([]string, len(infos))
	for i, info := range infos {
		names[i] = strings.TrimSuffix(info.Name(), suffix)
	}
	return names, err
}

// Load returns the version of a name; fs.ErrNotExist when there is none. A damaged entry is an error.
func (c *Versions) Load(name string) (*Version, error) {
	raw, err := c.read(name+suffix, maxEntryBytes)
	if err != nil {
		return nil, err
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxDataBytes))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	data, err := z.DecodeAll(raw, nil)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", name+suffix, err)
	}
	v := new(Version)
	if err := gob.NewDecoder(bytes.NewReader(data)).Decode(v); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", name+suffix, err)
	}
	if v.Name() != name {
		return nil, fmt.Errorf("%s is damaged: it is of another version", name+suffix)
	}
	return v, nil
}

// Remove removes the entry of a name, if there is one.
func (c *Versions) Remove(name string) error {
	err := os.Remove(filepath.Join(c.dir, name+suffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// prune removes entries above the limits.
func (c *Versions) prune() error {
	infos, err := c.entries()
	if err != nil {
		return err
	}
	total := int64(0)
	for _, info := range infos {
		total += info.Size()
	}
	for i, info := range infos {
		if total <= maxBytes && len(infos)-i <= maxVersions {
			break
		}
		total -= info.Size()
		if err := c.Remove(strings.TrimSuffix(info.Name(), suffix)); err != nil {
			return err
		}
	}
	return nil
}
