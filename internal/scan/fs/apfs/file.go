package apfs

import (
	"errors"
	"io"
	"io/fs"
	"sync"
)

var (
	errNegative = errors.New("a place before the file's start")
	errWhence   = errors.New("a whence that io.Seeker does not have")
	errDataless = errors.New("the file's content is not on this volume but with a cloud service")
)

// file is an open file. It is safe for concurrent use, though Read and Seek share one position.
type file struct {
	info
	io.ReaderAt

	mu sync.Mutex // guards the field below
	at int64
}

var (
	_ fs.File     = (*file)(nil)
	_ io.ReaderAt = (*file)(nil)
	_ io.Seeker   = (*file)(nil)
)

// open opens an inode under a name.
func (f *FS) open(n *inode, name string) (fs.File, error) {
	i := info{name, n}
	switch {
	case n.mode.IsDir():
		return &dirHandle{info: i, f: f}, nil
	case !n.mode.IsRegular():
		return nil, fs.ErrInvalid
	case n.stat.Dataless():
		return nil, errDataless
	case n.stat.Compressed():
		r, err := f.compressed(n)
		if err != nil {
			return nil, err
		}
		return &file{info: i, ReaderAt: r}, nil
	}
	return &file{info: i, ReaderAt: &stream{f: f, id: n.stream, size: n.size}}, nil
}

// Stat describes the file.
func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }

func (f *file) Close() error { return nil }

func (f *file) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	n, err := f.ReadAt(p, f.at)
	f.at += int64(n)
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
		off += f.at
	case io.SeekEnd:
		off += f.n.size
	default:
		return 0, &fs.PathError{Op: "seek", Path: f.name, Err: errWhence}
	}
	if off < 0 {
		return 0, &fs.PathError{Op: "seek", Path: f.name, Err: errNegative}
	}
	f.at = off
	return off, nil
}
