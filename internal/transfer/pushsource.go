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
	"github.com/buildyard/buildyard/internal/diskfile"
)

// pushSource is one file of a push, open.
type pushSource struct {
	file       PushFile
	size       int64
	content    blob.Source
	changes    blob.Changes // against parent; nil when the file is sent as a whole
	parent     blob.Digest
	readRanges blob.Source // the ranges of the file that are read, which may be more than what is sent
	readBytes  int64       // bytes of that
	closers    []io.Closer
	release    func() // of a file that is read past the page cache; nil for a disk
}

// openPushSource opens the files of a push file.
func openPushSource(spec PushFile) (*pushSource, error) {
	s := &pushSource{file: spec}
	err := s.openContent()
	if err == nil && spec.Parent != nil {
		err = s.openChanges()
	}
	if err == nil {
		err = s.measureReadRanges()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("push %s: %w", spec.Name, err), s.close())
	}
	return s, nil
}

func (s *pushSource) openContent() error {
	if s.file.Disk != nil {
		d, err := s.file.Disk.Open()
		if err != nil {
			return err
		}
		s.closers = append(s.closers, d)
		s.content, s.size = d, d.Size()
		return nil
	}
	f, st, err := diskfile.OpenRegular(s.file.Path)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, f)
	src, release := blob.FileSource{File: f, Size: st.Size()}.Uncached()
	s.release = release
	s.content, s.size = src, st.Size()
	return nil
}

// openChanges opens the source of the disk's changes against its parent.
func (s *pushSource) openChanges() (err error) {
	p := s.file.Parent
	d, ok := s.content.(*diskfile.OpenDisk)
	if !ok {
		return errors.New("only a disk can have a parent layer")
	}
	if s.parent, err = blob.ParseDigest(p.ChainID); err != nil {
		return err
	}
	if p.ChecksumFile != "" {
		sums, _, err := diskfile.OpenRegular(p.ChecksumFile)
		if errors.Is(err, fs.ErrNotExist) {
			s.parent = blob.Digest{} // removed since then: the disk is sent as a whole
			return nil
		}
		if err != nil {
			return err
		}
		s.closers = append(s.closers, sums)
		s.changes, err = newChecksumChanges(d, sums)
		return err
	}
	if p.Disk == nil {
		s.changes, err = d.ChangesAbove(p.FileCount)
		return err
	}
	below, err := p.Disk.Open()
	if err != nil {
		return err
	}
	s.closers = append(s.closers, below)
	s.changes = blob.Compare(d, below, s.size)
	return nil
}

func (s *pushSource) close() error {
	if s.release != nil {
		s.release()
	}
	var err error
	for _, c := range s.closers {
		err = errors.Join(err, c.Close()) // only read
	}
	return err
}

// apiFile returns the description of the file for the registry.
func (s *pushSource) apiFile() api.PushFile {
	f := api.PushFile{Name: s.file.Name, Kind: s.file.Kind, Format: s.file.Format, Size: s.size, Root: s.file.ChainID}
	if s.file.Disk != nil {
		f.Format = diskfile.FormatRaw
	}
	if s.changes != nil {
		f.Parent = s.parent.String()
	}
	f.Data = s.maxStoredBytes()
	return f
}

// minStoredDivisor is the divisor of a file's size with which a registry estimates what will be stored.
const minStoredDivisor = 20

// maxStoredBytes is the maximum number of bytes to store, at least 1. It is 0 if only a comparison would tell, unless
// the maximum is less than the registry's estimate.
func (s *pushSource) maxStoredBytes() int64 {
	_, isOverlay := s.changes.(diskfile.OverlayChanges)
	if !isOverlay && s.changes != nil && s.readBytes > s.size/minStoredDivisor {
		return 0
	}
	return max(1, s.readBytes)
}

// measureReadRanges finds the ranges of the file that are read.
func (s *pushSource) measureReadRanges() (err error) {
	s.readRanges = s.content
	if c, ok := s.changes.(diskfile.OverlayChanges); ok {
		s.readRanges = c
	}
	s.readBytes, err = dataBytesBetween(s.readRanges, 0, s.size)
	return err
}

// dataBytesBetween sums the ranges between from and to that may hold anything but zeros.
func dataBytesBetween(src blob.Source, from, to int64) (sum int64, err error) {
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

// sendWhole makes the push send the file as a whole; it reports whether that is a change.
func (s *pushSource) sendWhole() (changed bool) {
	changed = s.changes != nil || s.file.ChainID != ""
	s.changes, s.parent, s.file.ChainID = nil, blob.Digest{}, ""
	return changed && s.measureReadRanges() == nil
}

// writeResumeKey writes the sources of the file, for the resume key of its push.
func (s *pushSource) writeResumeKey(key io.Writer) error {
	paths := []string{s.file.Path}
	if s.file.Disk != nil {
		paths = s.file.Disk.Files()
	}
	if s.changes != nil {
		fmt.Fprintf(key, "%s %d\n", s.parent, s.file.Parent.FileCount)
		if s.file.Parent.Disk != nil {
			paths = append(paths, s.file.Parent.Disk.Files()...)
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

// encodeLayer makes the layer of the file. The kind, size and parent of o are set here.
func (s *pushSource) encodeLayer(ctx context.Context, o blob.EncodeOptions, sink blob.FrameSink) (*blob.Index, error) {
	o.Kind, o.Size, o.Parent = s.layerKind(), s.size, s.parent
	if s.changes != nil {
		return blob.EncodeChanges(ctx, s.changes, o, sink)
	}
	return blob.Encode(ctx, s.content, o, sink)
}

// layerKind returns how the file becomes a layer.
func (s *pushSource) layerKind() blob.Kind {
	switch {
	case s.file.Kind == api.FileState:
		return blob.KindState
	case s.file.Disk != nil, s.file.Kind == api.FileDisk && s.file.Format == diskfile.FormatRaw:
		return blob.KindDisk
	default:
		return blob.KindFile
	}
}
