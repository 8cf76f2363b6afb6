package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"sync"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/qcow2"
)

// cachedFrames is how many frames, of at most 1 MiB decoded and 1 MiB stored, are cached for all templates of a
// storage: the directories and inodes of a file system are spread over many of them, and
// neighboring data over several layers.
const cachedFrames = 64

// Storage is the directory of a registry, which may be running. Layers that several templates share
// are opened and decoded once. It is safe for concurrent use.
type Storage struct {
	dir    *layout.Dir
	frames *blob.FrameCache

	mu         sync.Mutex // guards the field below
	openLayers map[string]*sharedLayer
}

// sharedLayer is an open layer file. The storage counts its users.
type sharedLayer struct {
	name     string
	file     *os.File
	layer    *blob.Layer
	refCount int
}

// OpenStorage opens the directory of a registry, the one that contains vm_dir.
func OpenStorage(base string) (*Storage, error) {
	dir, err := layout.Open(base)
	if err != nil {
		return nil, err
	}
	return &Storage{dir: dir, frames: blob.NewFrameCache(cachedFrames), openLayers: map[string]*sharedLayer{}}, nil
}

// Close closes the directory. Templates that are open stay so.
func (s *Storage) Close() error { return s.dir.Close() }

// TemplateVersion is a version of a template.
type TemplateVersion struct {
	ID, Name  string // of the template
	Tag       string
	ContentID string // versions with an equal one have the same content
}

// LatestVersions returns the newest version of every template, in the order of their IDs, and the damage
// found.
func (s *Storage) LatestVersions() (tags []TemplateVersion, damaged []layout.DamagedTemplate, err error) {
	return s.versions(1)
}

// Versions returns all versions of every template, in the order of their IDs, oldest first, and the damage found.
func (s *Storage) Versions() (tags []TemplateVersion, damaged []layout.DamagedTemplate, err error) {
	return s.versions(math.MaxInt)
}

// versions returns as many of the newest versions of every template.
func (s *Storage) versions(newest int) (tags []TemplateVersion, damaged []layout.DamagedTemplate, err error) {
	list, damaged, err := s.dir.Templates()
	if err != nil {
		return nil, nil, err
	}
	for i := range list {
		t := &list[i]
		for k := max(0, len(t.Versions)-newest); k < len(t.Versions); k++ {
			v := &t.Versions[k]
			tags = append(tags, TemplateVersion{ID: t.ID, Name: t.Name, Tag: v.Tag, ContentID: v.ContentID})
		}
	}
	return tags, damaged, nil
}

// Contents returns the contents that the versions of all templates have, by the ID of the template, and nothing of
// damaged ones.
func (s *Storage) Contents() (contents map[string][]string, damaged []layout.DamagedTemplate, err error) {
	list, damaged, err := s.dir.Templates()
	contents = make(map[string][]string, len(list))
	for i := range list {
		for k := range list[i].Versions {
			contents[list[i].ID] = append(contents[list[i].ID], list[i].Versions[k].ContentID)
		}
	}
	return contents, damaged, err
}

// LatestTemplates lists the newest version of every template of a registry's storage.
func LatestTemplates(storage string) ([]TemplateVersion, []layout.DamagedTemplate, error) {
	s, err := OpenStorage(storage)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = s.Close() }()
	return s.LatestVersions()
}

// Template is a version of a template whose files are open: its disks stay readable whatever the
// registry does.
type Template struct {
	TemplateVersion
	Disks      []Disk
	AuxStorage string // name of the auxiliary storage of a macOS guest, which is not among Disks; "": it has none

	layers  []*sharedLayer
	storage *Storage
}

// FormatAnka is the format of a disk that is an archive of the hypervisor anka, which is not documented.
const FormatAnka = "anka"

// Disk is a disk of a template or an image.
type Disk struct {
	Name   string // of its file
	Format string // that of the image; of a template "raw", "qcow2" or FormatAnka as it says, "" = not known
	io.ReaderAt
	Size int64

	chain *blob.Chain // whose bytes are those of the disk; nil: it has another format, or no template
}

// Range is a range of a disk in bytes.
type Range struct{ Off, Len int64 }

// maxChangedRanges limits the ranges of ChangedSince.
const maxChangedRanges = 1 << 20

// ChainIDs returns names of the content of every version that the disk was made from, one after the other, and
// its own as the last; none when the changes between them are not known.
func (d *Disk) ChainIDs() (out []string) {
	if d.chain == nil {
		return nil
	}
	for _, id := range d.chain.ChainIDs() {
		out = append(out, id.String())
	}
	return out
}

// ChangedSince returns where the disk may differ from the nth of ChainIDs, counted from 0: in order and without
// overlap. It is false when there are too many such ranges.
func (d *Disk) ChangedSince(n int) ([]Range, bool) {
	runs, ok := d.chain.ChangedSince(n+1, maxChangedRanges)
	out := make([]Range, len(runs))
	for i, r := range runs {
		out[i] = Range(r)
	}
	return out, ok
}

// Open opens a version of a template; "" is the newest. Layers may be squashed or removed between
// reading the list and opening the files: then it starts over.
func (s *Storage) Open(id, tag string) (*Template, error) {
	t, err := s.tryOpen(id, tag)
	if errors.Is(err, errLayerMissing) {
		t, err = s.tryOpen(id, tag)
	}
	return t, err
}

// errLayerMissing reports that a layer of a template is missing.
var errLayerMissing = errors.New("a layer of the template is missing")

func (s *Storage) tryOpen(id, tag string) (*Template, error) {
	list, v, err := s.findVersion(id, tag)
	if err != nil {
		return nil, err
	}
	t := &Template{
		TemplateVersion: TemplateVersion{ID: list.ID, Name: list.Name, Tag: v.Tag, ContentID: v.ContentID},
		storage:         s,
	}
	t.AuxStorage = s.auxStorage(list.ID, v)
	for i := range v.Files {
		if f := &v.Files[i]; f.Kind == layout.KindDisk && f.Name != t.AuxStorage {
			if err := t.addDisk(f); err != nil {
				return nil, errors.Join(fmt.Errorf("template %s, tag %q, disk %s: %w", list.ID, v.Tag, f.Name, err),
					t.Close())
			}
		}
	}
	return t, nil
}

// auxStorage returns the name of the second drive of a macOS guest; "" for other versions, and for one
// without a readable configuration: its disks are then all scanned.
func (s *Storage) auxStorage(id string, v *layout.Version) string {
	var config struct {
		Apple  *struct{}               `json:"apple"`
		Drives []struct{ File string } `json:"hard_drives"`
	}
	text, err := s.dir.Config(id, v)
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil || config.Apple == nil || len(config.Drives) < 2 {
		return ""
	}
	return config.Drives[1].File
}

// findVersion returns the version with a tag.
func (s *Storage) findVersion(id, tag string) (*layout.Template, *layout.Version, error) {
	clean, ok := layout.ParseID(id)
	if !ok {
		return nil, nil, fmt.Errorf("%q is not a template ID", id)
	}
	t, err := s.dir.Template(clean)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("template %s not found in %s", clean, s.dir.Base())
	}
	if err != nil {
		return nil, nil, fmt.Errorf("template %s: %w", clean, err)
	}
	k := len(t.Versions) - 1
	if tag != "" {
		k = slices.IndexFunc(t.Versions, func(v layout.Version) bool { return v.Tag == tag })
	}
	switch {
	case k >= 0:
		return &t, &t.Versions[k], nil
	case tag == "":
		return nil, nil, fmt.Errorf("template %s has no tags", clean)
	}
	return nil, nil, fmt.Errorf("template %s has no tag %q", clean, tag)
}

// addDisk opens the layers of a disk.
func (t *Template) addDisk(f *layout.File) error {
	var sum int64
	for _, l := range f.Layers {
		sum += l.IndexLength
	}
	if len(f.Layers) > blob.MaxChainLayers || sum > blob.MaxChainIndexSize {
		return damaged("it has %d layers with indexes of %d bytes", len(f.Layers), sum)
	}
	chain := make([]*blob.Layer, len(f.Layers))
	for i, l := range f.Layers {
		shared, err := t.storage.acquireLayer(l)
		if err != nil {
			return err
		}
		t.layers = append(t.layers, shared)
		chain[i] = shared.layer
	}
	c, err := t.storage.frames.OpenChain(chain...)
	if err != nil {
		return err
	}
	d := Disk{Name: f.Name, Format: f.Format, ReaderAt: c, Size: c.Size()}
	if chain[len(chain)-1].Index().Kind() == blob.KindDisk {
		d.chain = c
	}
	// A layer stored as a disk has what its guest saw, whatever that looks like. A layer stored as
	// a file has the file of a client.
	mayBeQCOW2 := f.Format != formatRaw && f.Format != FormatAnka
	if chain[len(chain)-1].Index().Kind() == blob.KindFile && mayBeQCOW2 && isQCOW2(c) {
		image, err := qcow2.Open(c, c.Size())
		if err != nil {
			return err
		}
		d.ReaderAt, d.Size = image, image.Size()
	}
	t.Disks = append(t.Disks, d)
	return nil
}

// acquireLayer opens a layer, or adds a user to an open one.
func (s *Storage) acquireLayer(l layout.Layer) (*sharedLayer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.openLayers[l.Digest]; held != nil {
		held.refCount++
		return held, nil
	}
	root, err := blob.ParseDigest(l.Digest)
	if err != nil {
		return nil, err
	}
	f, err := s.dir.OpenLayer(layout.KindDisk, l.FileName())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", errLayerMissing, l.Digest)
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.Size() != l.Size {
		err = damaged("layer %s has %d bytes instead of %d", l.Digest, st.Size(), l.Size)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	layer, err := blob.OpenLayer(f, st.Size(), root)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("layer %s: %w", l.Digest, err), f.Close())
	}
	s.openLayers[l.Digest] = &sharedLayer{name: l.Digest, file: f, layer: layer, refCount: 1}
	return s.openLayers[l.Digest], nil
}

// Close releases the layers.
func (t *Template) Close() error {
	var err error
	s := t.storage
	s.mu.Lock()
	for _, l := range t.layers {
		if l.refCount--; l.refCount == 0 {
			delete(s.openLayers, l.name)
			err = errors.Join(err, l.file.Close())
		}
	}
	s.mu.Unlock()
	t.layers = nil
	return err
}
