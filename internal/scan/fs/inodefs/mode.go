package inodefs

import "io/fs"

// Kinds in the mode of an inode. Source: POSIX, sys/stat.h, with the values of Linux.
const (
	ModeKind    = 0xf000
	ModeFIFO    = 0x1000
	ModeChar    = 0x2000
	ModeDir     = 0x4000
	ModeBlock   = 0x6000
	ModeRegular = 0x8000
	ModeLink    = 0xa000
	ModeSocket  = 0xc000
)

// FileMode converts the mode of an inode to one of io/fs.
func FileMode(mode uint16) fs.FileMode {
	m := fs.FileMode(mode&0o777) | FileType(mode)
	for _, b := range []struct {
		bit  uint16
		mode fs.FileMode
	}{{0o4000, fs.ModeSetuid}, {0o2000, fs.ModeSetgid}, {0o1000, fs.ModeSticky}} {
		if mode&b.bit != 0 {
			m |= b.mode
		}
	}
	return m
}

// FileType returns the type bits of the mode of an inode.
func FileType(mode uint16) fs.FileMode {
	switch mode & ModeKind {
	case ModeRegular:
		return 0
	case ModeDir:
		return fs.ModeDir
	case ModeLink:
		return fs.ModeSymlink
	case ModeFIFO:
		return fs.ModeNamedPipe
	case ModeSocket:
		return fs.ModeSocket
	case ModeBlock:
		return fs.ModeDevice
	case ModeChar:
		return fs.ModeDevice | fs.ModeCharDevice
	}
	return fs.ModeIrregular
}
