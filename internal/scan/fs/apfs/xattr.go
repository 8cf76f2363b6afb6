package apfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

const (
	attrStream   = 1 // flags of an extended attribute: it is a data stream,
	attrEmbedded = 2 // or it is in its record

	attrSymlink = "com.apple.fs.symlink"

	maxAttrBytes   = 32 << 20 // bytes of an attribute that is read whole
	maxTargetBytes = 4 << 10
)

// xattr is an extended attribute.
type xattr struct {
	io.ReaderAt
	size int64
}

// parseXattr reads the record of an extended attribute.
func (f *FS) parseXattr(value []byte) (xattr, error) {
	if len(value) < 4 {
		return xattr{}, damaged("an extended attribute has no value")
	}
	flags, data := le.Uint16(value), value[4:]
	if n := int(le.Uint16(value[2:])); n <= len(data) {
		data = data[:n]
	} else {
		return xattr{}, damaged("an extended attribute is cut off")
	}
	switch {
	case flags&attrStream != 0 && len(data) >= 16:
		s := &dataStream{fs: f, id: le.Uint64(data), size: int64(le.Uint64(data[8:]))}
		if s.size < 0 {
			return xattr{}, damaged("an extended attribute has a size below zero")
		}
		return xattr{s, s.size}, nil
	case flags&attrEmbedded != 0:
		return xattr{bytes.NewReader(data), int64(len(data))}, nil
	}
	return xattr{}, damaged("an extended attribute is of no known kind (%#x)", flags)
}

// readXattr finds an extended attribute of an inode; fs.ErrNotExist if it has none.
func (f *FS) readXattr(id uint64, name string) (xattr, error) {
	var out xattr
	bad := error(fs.ErrNotExist)
	err := f.scanRecords(recordKey{id: id, kind: recordXattr, name: name}, func(key, value []byte) bool {
		if _, have := nameInKey(key, false); string(have) == name {
			out, bad = f.parseXattr(value)
		}
		return false
	})
	return out, errors.Join(err, bad)
}

// readAll reads a whole attribute.
func (a xattr) readAll(most int64) ([]byte, error) {
	if a.size > most {
		return nil, fmt.Errorf("extended attribute of %d bytes: %w", a.size, ErrUnsupported)
	}
	b := make([]byte, a.size)
	if n, err := a.ReadAt(b, 0); n < len(b) {
		return nil, err
	}
	return b, nil
}

// linkTarget reads the target of a symbolic link.
func (f *FS) linkTarget(n *inode) (string, error) {
	a, err := f.readXattr(n.stat.Inode, attrSymlink)
	if err != nil {
		return "", damaged("symbolic link %d has no target: %v", n.stat.Inode, err)
	}
	b, err := a.readAll(maxTargetBytes)
	if err != nil {
		return "", fmt.Errorf("read symbolic link %d: %w", n.stat.Inode, err)
	}
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b), nil
}

// Xattrs lists the names of the extended attributes of a file, without following a last
// symbolic link. The target of a link and the compression of a file are among them, as
// they are on disk.
func (f *FS) Xattrs(name string) ([]string, error) {
	n, err := f.findInode("listxattr", name, false)
	if err != nil {
		return nil, err
	}
	var out []string
	err = f.scanRecords(recordKey{id: n.stat.Inode, kind: recordXattr}, func(key, _ []byte) bool {
		_, have := nameInKey(key, false)
		out = append(out, string(have))
		return true
	})
	if err != nil {
		err = &fs.PathError{Op: "listxattr", Path: name, Err: err}
	}
	slices.Sort(out)
	return out, err
}

// Xattr reads an extended attribute of a file, without following a last symbolic link. One of more
// than 32 MiB is refused. It returns fs.ErrNotExist when the file has no attribute of this name.
func (f *FS) Xattr(name, key string) ([]byte, error) {
	n, err := f.findInode("getxattr", name, false)
	if err != nil {
		return nil, err
	}
	a, err := f.readXattr(n.stat.Inode, key)
	if err == nil {
		var b []byte
		if b, err = a.readAll(maxAttrBytes); err == nil {
			return b, nil
		}
	}
	return nil, &fs.PathError{Op: "getxattr", Path: name, Err: fmt.Errorf("%s: %w", key, err)}
}
