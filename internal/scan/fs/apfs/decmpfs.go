package apfs

import (
	"errors"
	"fmt"
	"io"

	"github.com/buildyard/buildyard/internal/scan/fs/decmpfs"
)

// compressionAttr returns the attribute of a compressed file.
func (f *FS) compressionAttr(id uint64) (decmpfs.Source, error) {
	a, err := f.readXattr(id, decmpfs.Attribute)
	if err != nil {
		return decmpfs.Source{}, damaged("file %d is compressed but has no %s: %v", id, decmpfs.Attribute, err)
	}
	return decmpfs.Source{ReaderAt: a, Size: a.size}, nil
}

// setPlainSize sets the size of a compressed file, where the inode does not have it. For a file with
// an unreadable header, opening it returns the error.
func (f *FS) setPlainSize(n *inode) {
	if n.sizeIsPlain {
		return
	}
	attr, err := f.compressionAttr(n.stat.Inode)
	if err != nil {
		return
	}
	if h, err := decmpfs.ReadHeader(attr); err == nil {
		n.size, n.sizeIsPlain = h.Size, true
	}
}

// openCompressed opens the content of a compressed file.
func (f *FS) openCompressed(n *inode) (io.ReaderAt, error) {
	id := n.stat.Inode
	attr, err := f.compressionAttr(id)
	if err != nil {
		return nil, err
	}
	fork := func() (decmpfs.Source, error) {
		a, err := f.readXattr(id, decmpfs.ResourceFork)
		return decmpfs.Source{ReaderAt: a, Size: a.size}, err
	}
	p, err := decmpfs.Open(attr, fork, f.blockCache, id)
	if err != nil {
		return nil, compressionError(id, err)
	}
	return compressed{p, id}, nil
}

// compressed is the content of a compressed file.
type compressed struct {
	*decmpfs.File
	id uint64
}

// ReadAt decompresses the blocks that it needs.
func (c compressed) ReadAt(b []byte, off int64) (int, error) {
	n, err := c.File.ReadAt(b, off)
	return n, compressionError(c.id, err)
}

// compressionError makes an error of package decmpfs one of this package.
func compressionError(id uint64, err error) error {
	switch {
	case errors.Is(err, decmpfs.ErrDamaged):
		return fmt.Errorf("%w: compressed file %d: %w", ErrDamaged, id, err)
	case errors.Is(err, decmpfs.ErrUnsupported):
		return fmt.Errorf("%w: compressed file %d: %w", ErrUnsupported, id, err)
	}
	return err
}
