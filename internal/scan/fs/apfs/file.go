package apfs

import (
	"errors"
	"io"
	"io/fs"
	"sync"
)

var (
	errNegativeOffset = errors.New("negative file offset")
	errInvalidWhence  = errors.New("invalid whence of a seek")
	errDataless       = errors.New("the content of the file is in a cloud service and not on this volume")
)

// file is an open file. It is safe for concurrent use, though Read and Seek share one position.
type file struct {
	fileInfo
	io.ReaderAt

	mu  sync.Mutex // guards the field below
	pos int64
}

var (
	_ fs.File     = (*file)(nil)
	_ io.ReaderAt = (*file)(nil)
	_ io.Seeker   = (*file)(nil)
)

// openInode opens an inode under a name.
func (f *FS) openInode(n *inode, name string) (fs.File, error) {
	i := fileInfo{name, n}
	switch {
	case n.mode.IsDir():
		return &dirHandle{fileInfo: i, fs: f}, nil
	case !n.mode.IsRegular():
		return nil, fs.ErrInvalid
	case n.stat.Dataless():
		return nil, errDataless
	case n.stat.Compressed():
		r, err := f.openCompressed(n)
		if err != nil {
			return nil, err
		}
		return &file{fileInfo: i, ReaderAt: r}, nil
	}
	return &file{fileInfo: i, ReaderAt: &dataStream{fs: f, id: n.streamID, size: n.size}}, nil
}

// Stat describes the file.
func (f *file) Stat() (fs.FileInfo, error) { return f.fileInfo, nil }

func (f *file) Close() error { return nil }

func (f *file) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	n, err := f.ReadAt(p, f.pos)
	f.pos += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (f *file) Seek(off int64, whence int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		off += f.pos
	case io.SeekEnd:
		off += f.inode.size
	default:
		return 0, &fs.PathError{Op: "seek", Path: f.name, Err: errInvalidWhence}
	}
	if off < 0 {
		return 0, &fs.PathError{Op: "seek", Path: f.name, Err: errNegativeOffset}
	}
	f.pos = off
	return off, nil
}
