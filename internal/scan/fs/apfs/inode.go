package apfs

import (
	"io/fs"
	"time"

	"github.com/buildyard/buildyard/internal/scan/fs/decmpfs"
)

const (
	inodeHeaderSize = 92 // bytes before the extended fields

	fieldStream = 8 // extended fields of an inode
	fieldDevice = 14

	hasPlainSize = 0x40000 // internal flag: the size of a compressed file is in the inode

	flagDataless = 0x40000000 // of st_flags in BSD

	modeType    = 0o170000
	modeFIFO    = 0o010000
	modeChar    = 0o020000
	modeDir     = 0o040000
	modeBlock   = 0o060000
	modeRegular = 0o100000
	modeLink    = 0o120000
	modeSocket  = 0o140000
	modeSetuid  = 0o4000
	modeSetgid  = 0o2000
	modeSticky  = 0o1000
)

// Stat is the result of Sys of a file's info: fields that io/fs lacks.
type Stat struct {
	Inode    uint64
	Links    uint32 // names of a file; entries of a directory
	UID, GID uint32
	Flags    uint32 // st_flags of BSD
	Device   uint32 // of a device file
	Created  time.Time
	Accessed time.Time
	Changed  time.Time // the inode
}

// ID returns the inode's number: names with the same one are hard links.
func (s *Stat) ID() uint64 { return s.Inode }

// Dataless reports whether the file's content is only in a cloud service.
func (s *Stat) Dataless() bool { return s.Flags&flagDataless != 0 }

// Compressed reports whether the file's content is compressed; reads decompress it.
func (s *Stat) Compressed() bool { return s.Flags&decmpfs.FlagCompressed != 0 }

// inode is the record of a file or directory.
type inode struct {
	stat        Stat
	parentInode uint64 // directory; of a file with several names one of its directories
	streamID    uint64 // the number of its extents
	mode        fs.FileMode
	modTime     time.Time
	size        int64 // of the data stream, or of a compressed file when that is known
	sizeIsPlain bool  // size is that of a compressed file
	hasStream   bool  // it has a data stream
}

// parseInode decodes the value of an inode's record.
func parseInode(id uint64, b []byte) (inode, error) {
	if len(b) < inodeHeaderSize {
		return inode{}, damaged("inode %d has %d bytes", id, len(b))
	}
	n := inode{
		stat: Stat{
			Inode: id, Links: le.Uint32(b[56:]), UID: le.Uint32(b[72:]), GID: le.Uint32(b[76:]),
			Flags:   le.Uint32(b[68:]),
			Created: toTime(le.Uint64(b[16:])), Changed: toTime(le.Uint64(b[32:])), Accessed: toTime(le.Uint64(b[40:])),
		},
		parentInode: le.Uint64(b), streamID: le.Uint64(b[8:]), modTime: toTime(le.Uint64(b[24:])),
		mode: toFileMode(le.Uint16(b[80:])),
	}
	if err := n.parseFields(b[inodeHeaderSize:]); err != nil {
		return n, err
	}
	if n.stat.Compressed() && le.Uint64(b[48:])&hasPlainSize != 0 {
		n.size, n.sizeIsPlain = int64(le.Uint64(b[84:])), true
	}
	if n.size < 0 {
		return n, damaged("inode %d has a size below zero", id)
	}
	return n, nil
}

// parseFields decodes the extended fields: their number, the length of all, a list of kinds and lengths,
// then the values, each padded to eight bytes.
func (n *inode) parseFields(b []byte) error {
	if len(b) < 4 {
		return nil
	}
	count := int(le.Uint16(b))
	at := 4 + 4*count
	if at > len(b) {
		return damaged("inode %d has %d extended fields, which do not fit", n.stat.Inode, count)
	}
	for i := range count {
		kind, size := b[4+4*i], int(le.Uint16(b[6+4*i:]))
		if at+size > len(b) {
			return damaged("an extended field of inode %d is cut off", n.stat.Inode)
		}
		v := b[at : at+size]
		switch {
		case kind == fieldStream && size >= 8:
			n.size, n.hasStream = int64(le.Uint64(v)), true
		case kind == fieldDevice && size >= 4:
			n.stat.Device = le.Uint32(v)
		}
		at += (size + 7) &^ 7
	}
	return nil
}

// toFileMode converts a mode of Unix to one of io/fs.
func toFileMode(m uint16) fs.FileMode {
	out := fs.FileMode(m & 0o777)
	switch m & modeType {
	case modeRegular:
	case modeDir:
		out |= fs.ModeDir
	case modeLink:
		out |= fs.ModeSymlink
	case modeFIFO:
		out |= fs.ModeNamedPipe
	case modeSocket:
		out |= fs.ModeSocket
	case modeChar:
		out |= fs.ModeDevice | fs.ModeCharDevice
	case modeBlock:
		out |= fs.ModeDevice
	default:
		out |= fs.ModeIrregular
	}
	for bit, flag := range map[uint16]fs.FileMode{
		modeSetuid: fs.ModeSetuid, modeSetgid: fs.ModeSetgid, modeSticky: fs.ModeSticky,
	} {
		if m&bit != 0 {
			out |= flag
		}
	}
	return out
}

// entryType converts the kind of a directory's entry to a mode; ok is false for one that only the
// inode has.
func entryType(flags uint16) (mode fs.FileMode, ok bool) {
	switch flags & 0xf {
	case 1:
		return fs.ModeNamedPipe, true
	case 2:
		return fs.ModeDevice | fs.ModeCharDevice, true
	case 4:
		return fs.ModeDir, true
	case 6:
		return fs.ModeDevice, true
	case 8:
		return 0, true
	case 10:
		return fs.ModeSymlink, true
	case 12:
		return fs.ModeSocket, true
	}
	return fs.ModeIrregular, false
}
