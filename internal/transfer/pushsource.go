package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
)

// source is one file of a push, open.
type source struct {
	spec    PushFile
	size    int64
	whole   blob.Source
	changes blob.Changes // against parent; nil when the file is sent as a whole
	parent  blob.Digest
	extent  blob.Source // the ranges of the file that are read, which may be more than what is sent
	total   int64       // bytes of that
	open    []io.Closer
	release func() // of a file that is read past the page cache; nil for a disk
}

// openSource opens the files of a push file.
func openSource(spec PushFile) (*source, error) {
	s := &source{spec: spec}
	err := s.openWhole()
	if err == nil && spec.Parent != nil {
		err = s.openChanges()
	}
	if err == nil {
		err = s.survey()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("push %s: %w", spec.Name, err), s.close())
	}
	return s, nil
}

func (s *source) openWhole() error {
	if s.spec.Disk != nil {
		d, err := s.spec.Disk.Open()
		if err != nil {
			return err
		}
		s.open = append(s.open, d)
		s.whole, s.size = d, d.Size()
		return nil
	}
	f, st, err := openRegular(s.spec.Path)
	if err != nil {
		return err
	}
	s.open = append(s.open, f)
	src, release := blob.FileSource{File: f, Size: st.Size()}.Uncached()
	s.release = release
	s.whole, s.size = src, st.Size()
	return nil
}

// openChanges opens the source of the disk's changes against its parent.
func (s *source) openChanges() (err error) {
	p := s.spec.Parent
	d, ok := s.whole.(*OpenDisk)
	if !ok {
		return errors.New("only a disk can have a parent layer")
	}
	if s.parent, err = blob.ParseDigest(p.Tip); err != nil {
		return err
	}
	if p.Sums != "" {
		sums, _, err := openRegular(p.Sums)
		if errors.Is(err, fs.ErrNotExist) {
			s.parent = blob.Digest{} // removed since then: the disk is sent as a whole
			return nil
		}
		if err != nil {
			return err
		}
		s.open = append(s.open, sums)
		s.changes, err = compareSums(d, sums)
		return err
	}
	if p.Disk == nil {
		s.changes, err = d.above(p.Files)
		return err
	}
	below, err := p.Disk.Open()
	if err != nil {
		return err
	}
	s.open = append(s.open, below)
	s.changes = blob.Compare(d, below, s.size)
	return nil
}

func (s *source) close() error {
	if s.release != nil {
		s.release()
	}
	var err error
	for _, c := range s.open {
		err = errors.Join(err, c.Close()) // only read
	}
	return err
}

// announce returns the description of the file for the registry.
func (s *source) announce() api.PushFile {
	f := api.PushFile{Name: s.spec.Name, Kind: s.spec.Kind, Format: s.spec.Format, Size: s.size, Root: s.spec.Root}
	if s.spec.Disk != nil {
		f.Format = formatRaw
	}
	if s.changes != nil {
		f.Parent = s.parent.String()
	}
	f.Data = s.data()
	return f
}

// hopeful is the divisor of a file's size with which a registry estimates what will be stored.
const hopeful = 20

// data is the maximum number of bytes to store, at least 1. It is 0 if only a comparison would tell, unless the
// maximum is less than the registry's estimate.
func (s *source) data() int64 {
	if _, told := s.changes.(overlayChanges); !told && s.changes != nil && s.total > s.size/hopeful {
		return 0
	}
	return max(1, s.total)
}

// survey finds the ranges of the file that are read.
func (s *source) survey() (err error) {
	s.extent = s.whole
	if c, ok := s.changes.(overlayChanges); ok {
		s.extent = c
	}
	s.total, err = dataIn(s.extent, 0, s.size)
	return err
}

// dataIn sums the ranges between from and to that may hold anything but zeros.
func dataIn(src blob.Source, from, to int64) (sum int64, err error) {
	for from < to {
		start, end, err := src.NextData(from)
		if err != nil || start >= end || start >= to {
			return sum, err
		}
		from = min(end, to)
		sum += from - start
	}
	return sum, nil
}

// forgo makes the push send the file as a whole; it reports whether that is a change.
func (s *source) forgo() (changed bool) {
	changed = s.changes != nil || s.spec.Root != ""
	s.changes, s.parent, s.spec.Root = nil, blob.Digest{}, ""
	return changed && s.survey() == nil
}

// describe writes the sources of the file, for the resume key of its push.
func (s *source) describe(key io.Writer) error {
	paths := []string{s.spec.Path}
	if s.spec.Disk != nil {
		paths = s.spec.Disk.files()
	}
	if s.changes != nil {
		fmt.Fprintf(key, "%s %d\n", s.parent, s.spec.Parent.Files)
		if s.spec.Parent.Disk != nil {
			paths = append(paths, s.spec.Parent.Disk.files()...)
		}
	}
	for _, path := range paths {
		path, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(key, "%q %d %d\n", path, st.Size(), st.ModTime().UnixNano())
	}
	return nil
}

// encode makes the layer of the file.
func (s *source) encode(ctx context.Context, workers int, sink blob.Sink) (*blob.Index, error) {
	o := blob.EncodeOptions{Kind: s.kind(), Size: s.size, Workers: workers, Parent: s.parent}
	if s.changes != nil {
		return blob.EncodeChanges(ctx, s.changes, o, sink)
	}
	return blob.Encode(ctx, s.whole, o, sink)
}

// kind returns how the file becomes a layer.
func (s *source) kind() blob.Kind {
	switch {
	case s.spec.Kind == api.FileState:
		return blob.KindState
	case s.spec.Disk != nil, s.spec.Kind == api.FileDisk && s.spec.Format == formatRaw:
		return blob.KindDisk
	default:
		return blob.KindFile
	}
}
