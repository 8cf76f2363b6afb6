package ext4

import (
	"errors"
	"io"
	"io/fs"
)

// readAheadBytes is how many bytes a small read reads ahead, and the memory of an open file.
const readAheadBytes = 16 << 10

// file is an open file. ReadAt is safe for concurrent use.
type file struct {
	*inodeContent
	info      fs.FileInfo
	pos       int64
	buf       []byte // read ahead
	bufOffset int64  // offset of buf
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
	if f.pos >= f.inode.size {
		return 0, io.EOF
	}
	if within := f.pos - f.bufOffset; within < 0 || within >= int64(len(f.buf)) {
		if len(p) >= readAheadBytes {
			n, err := f.ReadAt(p, f.pos)
			f.pos += int64(n)
			if n > 0 && errors.Is(err, io.EOF) {
				err = nil
			}
			return n, err
		}
		if err := f.readAhead(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.buf[f.pos-f.bufOffset:])
	f.pos += int64(n)
	return n, nil
}

// readAhead reads ahead from the position.
func (f *file) readAhead() error {
	want := min(readAheadBytes, f.inode.size-f.pos)
	if int64(cap(f.buf)) < want {
		f.buf = make([]byte, want)
	}
	f.buf, f.bufOffset = f.buf[:want], f.pos
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
		off += f.inode.size
	default:
		return 0, fs.ErrInvalid
	}
	if off < 0 {
		return 0, fs.ErrInvalid
	}
	f.pos = off
	return off, nil
}
