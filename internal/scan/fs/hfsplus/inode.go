package hfsplus

import (
	"time"

	"github.com/buildyard/buildyard/internal/scan/fs/decmpfs"
	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

const (
	epoch           = -2082844800 // the second at which times begin, 1904, since 1970
	defaultDirMode  = inodefs.ModeDir | 0o755
	defaultFileMode = inodefs.ModeRegular | 0o644 // of files that older systems wrote
)

// inode has the fields of the record of a file or directory.
type inode struct {
	number       uint32
	key          catalogKey // of a directory: that of its record
	mode         uint16
	isCompressed bool
	links        uint32 // names
	size         int64
	mtime        time.Time
	data         forkData
	resource     forkData
}

func (n *inode) kind() uint16 { return n.mode & inodefs.ModeKind }
func (n *inode) isDir() bool  { return n.kind() == inodefs.ModeDir }

// recordMode returns the mode in the record of a file or directory. Older systems wrote none.
func recordMode(value []byte) uint16 {
	mode := be.Uint16(value[42:])
	switch {
	case be.Uint16(value) == recordDir && mode&inodefs.ModeKind != inodefs.ModeDir:
		return defaultDirMode
	case be.Uint16(value) == recordFile && mode&inodefs.ModeKind == 0:
		return defaultFileMode
	}
	return mode
}

// checkRecord checks the kind and size of the record of a file or directory.
func checkRecord(value []byte) error {
	if len(value) >= 2 {
		switch kind := be.Uint16(value); {
		case kind == recordDir && len(value) >= dirRecordSize:
			return nil
		case kind == recordFile && len(value) >= fileRecordSize:
			if recordMode(value)&inodefs.ModeKind == inodefs.ModeDir {
				return damaged("file %d has the mode of a directory", be.Uint32(value[8:]))
			}
			return nil
		}
	}
	return damaged("a record of the catalog with %d bytes is not of a file or directory", len(value))
}

// readInode reads the record of a file or directory.
func (f *FS) readInode(p position) (*inode, error) {
	b, value, err := p.record()
	if err != nil {
		return nil, err
	}
	dir, name, err := splitCatalogKey(b)
	if err != nil {
		return nil, err
	}
	if err := checkRecord(value); err != nil {
		return nil, err
	}
	n := &inode{
		number: be.Uint32(value[8:]), mode: recordMode(value), links: 1,
		mtime: time.Unix(epoch+int64(be.Uint32(value[16:])), 0),
	}
	if n.isDir() {
		n.key = catalogKey{dir, string(name)}
		return n, nil
	}
	n.data, n.resource = parseFork(value[88:]), parseFork(value[168:])
	n.size = n.data.size
	if dir == f.linkedFiles {
		n.links = be.Uint32(value[44:])
	}
	if value[41]&decmpfs.FlagCompressed != 0 && n.kind() == inodefs.ModeRegular {
		n.isCompressed = true
		f.setPlainSize(n)
	}
	if n.size < 0 {
		return nil, damaged("file %d has %d bytes", n.number, uint64(n.size))
	}
	return n, nil
}

// setPlainSize sets the size of a compressed file. For one with an unreadable header, opening it returns the error.
func (f *FS) setPlainSize(n *inode) {
	attr, err := f.compressionAttr(n.number)
	if err != nil {
		return
	}
	if h, err := decmpfs.ReadHeader(attr); err == nil {
		n.size = h.Size
	}
}

// ID returns the number of the file: names with the same one are the same file.
func (n *inode) ID() uint64 { return uint64(n.number) }

// Links returns the number of names of the file.
func (n *inode) Links() uint64 { return uint64(n.links) }

// IsLink reports whether the inode is a symbolic link.
func (n *inode) IsLink() bool { return n.kind() == inodefs.ModeLink }

// Attributes returns its mode, its size, and when its content was changed.
func (n *inode) Attributes() (mode uint16, size int64, changed time.Time) {
	return n.mode, n.size, n.mtime
}
