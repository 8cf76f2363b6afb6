package ext4

import (
	"errors"
	"io"
	"io/fs"
)

// ahead is how many bytes a small read reads ahead, and the memory of an open file.
const ahead = 16 << 10

// file is an open file. ReadAt is safe for concurrent use.
type file struct {
	*content
	info info
	pos  int64
	buf  []byte // read ahead
	from int64  // offset of buf
}

var _ interface {
	fs.File
	io.ReaderAt
	io.Seeker
} = (*file)(nil)

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { f.buf = nil; return nil }

func (f *file) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if f.pos >= f.n.size {
		return 0, io.EOF
	}
	if within := f.pos - f.from; within < 0 || within >= int64(len(f.buf)) {
		if len(p) >= ahead {
			n, err := f.ReadAt(p, f.pos)
			f.pos += int64(n)
			if n > 0 && errors.Is(err, io.EOF) {
				err = nil
			}
			return n, err
		}
		if err := f.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.buf[f.pos-f.from:])
	f.pos += int64(n)
	return n, nil
}

// fill reads ahead from the position.
func (f *file) fill() error {
	want := min(ahead, f.n.size-f.pos)
	if int64(cap(f.buf)) < want {
		f.buf = make([]byte, want)
	}
	f.buf, f.from = f.buf[:want], f.pos
	n, err := f.ReadAt(f.buf, f.pos)
	f.buf = f.buf[:n]
	if n > 0 {
		return nil // the next read returns the error
	}
	return err
}

func (f *file) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		off += f.pos
	case io.SeekEnd:
		off += f.n.size
	default:
		return 0, fs.ErrInvalid
	}
	if off < 0 {
		return 0, fs.ErrInvalid
	}
	f.pos = off
	return off, nil
}

// dirHandle is an open directory.
type dirHandle struct {
	info   info
	parent uint32
	fs     *FS
	left   []fs.DirEntry
	read   bool
}

var _ fs.ReadDirFile = (*dirHandle)(nil)

func (d *dirHandle) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *dirHandle) Close() error               { return nil }
func (d *dirHandle) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: errors.New("it is a directory")}
}

// ReadDir returns the next n entries, or all that are left.
func (d *dirHandle) ReadDir(n int) ([]fs.DirEntry, error) {
	if !d.read {
		list, err := d.fs.readDir(d.info.n, d.parent, d.info.name)
		if err != nil && (n > 0 || len(list) == 0) {
			return nil, err
		}
		d.left, d.read = list, true
		if err != nil {
			d.left = nil
			return list, err
		}
	}
	if n <= 0 {
		out := d.left
		d.left = nil
		return out, nil
	}
	if len(d.left) == 0 {
		return nil, io.EOF
	}
	out := d.left[:min(n, len(d.left))]
	d.left = d.left[len(out):]
	return out, nil
}
