package hfsplus

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Numbers of files that have none in the catalog, and of the root.
const (
	rootParent     = 1
	rootDir        = 2
	catalogFile    = 4
	extentsFile    = 3
	attributesFile = 8
)

// Form of the catalog. A key has the directory, and the name with its length. The record of a directory or file begins
// with its kind; a thread, whose key has the number of one and no name, names the directory and the name.
const (
	catalogKeySize = 6 // without the name
	recordDir      = 1
	recordFile     = 2
	threadDir      = 3
	threadFile     = 4
	dirRecordSize  = 88
	fileRecordSize = 248
	threadSize     = 10 // without the name
	maxNameUnits   = 255
)

// Directories of the root with the files and directories that have several names. Names lead to them by number.
const (
	linkedFilesName = "\x00\x00\x00\x00HFS+ Private Data"
	linkedDirsName  = ".HFS+ Private Directory Data\r"
	fileLinkPrefix  = "iNode"
	dirLinkPrefix   = "dir_"
)

// Types and creators of files that are names of linked files and directories.
const (
	typeFileLink     = 0x686c6e6b // "hlnk"
	creatorFileLink  = 0x6866732b // "hfs+"
	typeDirLink      = 0x66647270 // "fdrp"
	creatorDirLink   = 0x4d414353 // "MACS"
	flagHasLinkChain = 0x20       // in the flags of a record
	firstLinkAttr    = "com.apple.system.hfs.firstlink"
)

// catalogKey is a key of the catalog: the name as it is stored, in UTF-16.
type catalogKey struct {
	dir  uint32
	name string
}

// splitCatalogKey returns the directory and the name of a key.
func splitCatalogKey(b []byte) (dir uint32, name []byte, err error) {
	if len(b) < catalogKeySize {
		return 0, nil, damaged("a key of the catalog has %d bytes", len(b))
	}
	units := int(be.Uint16(b[4:]))
	if units > maxNameUnits || 2*units > len(b)-catalogKeySize {
		return 0, nil, damaged("a key of the catalog has a name of %d characters", units)
	}
	return be.Uint32(b), b[catalogKeySize:][:2*units], nil
}

func parseCatalogKey(b []byte) (catalogKey, error) {
	dir, name, err := splitCatalogKey(b)
	return catalogKey{dir, string(name)}, err
}

// asciiName returns a name as it is stored.
func asciiName(s string) string {
	b := make([]byte, 0, 2*len(s))
	for i := range len(s) {
		b = append(b, 0, s[i])
	}
	return string(b)
}

// findRecord returns the record of a key, whose name is in ASCII; ok is false where there is none. That suffices where
// the names in the directory that begin alike are in ASCII, too: then the file system orders them as compareNames does.
func (f *FS) findRecord(k catalogKey) (p position, ok bool, err error) {
	p, err = f.catalog.find(func(b []byte) (int, error) {
		dir, name, err := splitCatalogKey(b)
		if err != nil || dir != k.dir {
			return cmp.Compare(dir, k.dir), err
		}
		return compareNames(name, k.name, f.catalog.isExact), nil
	})
	return p, p.node != nil && p.isExact, err
}

// compareNames compares a name as it is stored with one in ASCII: without regard to case unless isExact.
func compareNames(a []byte, b string, isExact bool) int {
	for i := 0; i < len(a) && i < len(b); i += 2 {
		x, y := uint16(a[i])<<8|uint16(a[i+1]), uint16(b[i])<<8|uint16(b[i+1])
		if !isExact {
			x, y = foldASCII(x), foldASCII(y)
		}
		if x != y {
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(len(a), len(b))
}

// foldASCII returns what a character is compared as where case is ignored. A zero is behind all others.
func foldASCII(u uint16) uint16 {
	switch {
	case 'A' <= u && u <= 'Z':
		return u + 'a' - 'A'
	case u == 0:
		return 0xffff
	}
	return u
}

// appendName appends a name in UTF-8. The disk has a slash where paths have a colon.
func appendName(out, name []byte) []byte {
	for i := 0; i+1 < len(name); i += 2 {
		r := rune(name[i])<<8 | rune(name[i+1])
		switch {
		case r == 0:
			r = '\u2400' // the picture of it, as on macOS and Linux
		case r == '/':
			r = ':'
		case r < utf8.RuneSelf:
		case utf16.IsSurrogate(r):
			low := rune(utf8.RuneError)
			if i+3 < len(name) {
				low = rune(name[i+2])<<8 | rune(name[i+3])
			}
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				i += 2
			}
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}

// findThread returns the thread of a directory or file, and the key that it names.
func (f *FS) findThread(id uint32) (p position, named catalogKey, err error) {
	p, ok, err := f.findRecord(catalogKey{dir: id})
	if err != nil {
		return p, named, err
	}
	if !ok {
		return p, named, damaged("file %d has no thread", id)
	}
	_, value, err := p.record()
	if err != nil {
		return p, named, err
	}
	if len(value) < threadSize || be.Uint16(value) != threadDir && be.Uint16(value) != threadFile {
		return p, named, damaged("the thread of file %d has %d bytes", id, len(value))
	}
	named, err = parseCatalogKey(value[4:])
	return p, named, err
}

// findLinked returns the record of the linked file or directory with a number.
func (f *FS) findLinked(dir uint32, prefix string, number uint32) (position, error) {
	name := prefix + strconv.FormatUint(uint64(number), 10)
	p, ok, err := f.findRecord(catalogKey{dir, asciiName(name)})
	if err == nil && !ok {
		err = damaged("a name leads to %s, which does not exist", name)
	}
	return p, err
}

// isFirstName reports whether a name of a linked directory is the one that the directory names as its first. Only by
// this one it is read, so that there is one path to each directory.
func (f *FS) isFirstName(dir uint32, link uint32, name catalogKey) (bool, error) {
	b, err := f.readAttribute(dir, firstLinkAttr)
	if errors.Is(err, fs.ErrNotExist) {
		err = damaged("it does not have one")
	}
	var first uint64
	if err == nil {
		first, err = strconv.ParseUint(string(b), 10, 32)
	}
	var named catalogKey
	if err == nil {
		_, named, err = f.findThread(uint32(first))
	}
	if err != nil {
		return false, fmt.Errorf("the first name of linked directory %d: %w", dir, err)
	}
	if uint32(first) != link {
		return false, nil
	}
	if named != name {
		return false, damaged("the first name of linked directory %d is another one", dir)
	}
	return true, nil
}
