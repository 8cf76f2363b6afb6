package hfsplustest

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/buildyard/buildyard/internal/scan/fs/decmpfs/decmpfstest"
)

// Types of files.
const (
	Directory = 0o040000
	Regular   = 0o100000
	Link      = 0o120000
	FIFO      = 0o010000
)

// File describes a file, directory or link. Its parent directories are created. Names are written as they are, a colon
// as a slash.
type File struct {
	Path   string
	Mode   uint16 // of Unix, with the type; 0 for a file that all may read
	Data   []byte
	Target string // of a symbolic link
	Same   string // path of an earlier file or directory of which this is another name
	Time   int64  // of the last change, in seconds since 1970; 0 = a fixed one
	NoMode bool   // without owner and mode, as older systems write
	Pieces int    // separate extents of its content
	// Compression is the kind of com.apple.decmpfs; 0 for none. Stored leaves its blocks uncompressed.
	Compression uint32
	Stored      bool
}

const (
	privateFiles = "\x00\x00\x00\x00HFS+ Private Data"
	privateDirs  = ".HFS+ Private Directory Data\r"
	rootParent   = 1
	rootDir      = 2
	firstNumber  = 16
)

// entry is a directory or file that was added.
type entry struct {
	number uint32
	isDir  bool
}

// catalog collects the records of a volume.
type catalog struct {
	w          *writer
	next       uint32 // number
	records    []record
	attributes []record
	entries    map[string]entry  // by path
	valence    map[uint32]uint32 // entries of a directory
	dirs       []dirRecord
	linked     map[string]int // the number of names of what has several, by its first path
	fileCount  uint32
	dirCount   uint32
	hidden     [2]uint32 // numbers of the directories of linked files and directories
}

// dirRecord is a directory whose record is written when its entries are counted.
type dirRecord struct {
	parent uint32
	name   string
	number uint32
	file   File
}

func newCatalog(w *writer) *catalog {
	return &catalog{
		w: w, next: firstNumber, entries: map[string]entry{".": {rootDir, true}}, valence: map[uint32]uint32{},
		linked: map[string]int{},
	}
}

// build adds all files, and returns the catalog.
func (c *catalog) build() *catalog {
	c.dirs = append(c.dirs, dirRecord{rootParent, c.w.Name, rootDir, File{Mode: Directory | 0o755}})
	for _, f := range c.w.Files {
		if f.Same != "" {
			c.linked[f.Same] = max(c.linked[f.Same], 1) + 1
		}
	}
	for i := range c.w.Files {
		c.add(&c.w.Files[i])
	}
	for _, d := range c.dirs {
		c.valence[d.parent]++
	}
	for _, d := range c.dirs {
		b := common(1, 88, d.number, &d.file)
		be.PutUint32(b[4:], c.valence[d.number])
		c.put(d.parent, d.name, d.number, b)
	}
	c.dirCount = uint32(len(c.dirs)) - 1 // without the root
	sortRecords(c.records, c.compare)
	sortRecords(c.attributes, func(a, b record) int {
		return cmp.Or(cmp.Compare(be.Uint32(a.key[2:]), be.Uint32(b.key[2:])), bytes.Compare(a.key[12:], b.key[12:]))
	})
	return c
}

// compare compares records by their keys.
func (c *catalog) compare(a, b record) int {
	if d := cmp.Compare(be.Uint32(a.key), be.Uint32(b.key)); d != 0 {
		return d
	}
	if c.w.IsExact {
		return bytes.Compare(a.key[6:], b.key[6:])
	}
	return bytes.Compare(fold(a.key[6:]), fold(b.key[6:]))
}

// fold returns a name without case: a zero is behind all characters.
func fold(name []byte) []byte {
	out := make([]byte, 0, len(name))
	for i := 0; i < len(name); i += 2 {
		r := unicode.ToLower(rune(be.Uint16(name[i:])))
		if r == 0 {
			r = 0xffff
		}
		out = be.AppendUint16(out, uint16(r))
	}
	return out
}

func (c *catalog) number() uint32 {
	c.next++
	return c.next - 1
}

// key returns a key of the catalog.
func key(dir uint32, name string) []byte {
	units := utf16.Encode([]rune(strings.ReplaceAll(name, ":", "/")))
	b := be.AppendUint16(be.AppendUint32(nil, dir), uint16(len(units)))
	for _, u := range units {
		b = be.AppendUint16(b, u)
	}
	return b
}

// put adds a record of a directory or file, and its thread.
func (c *catalog) put(dir uint32, name string, number uint32, value []byte) {
	k := key(dir, name)
	thread := append(be.AppendUint32(nil, uint32(be.Uint16(value)+2)<<16), k...)
	c.records = append(c.records, record{k, value}, record{key(number, ""), thread})
}

// parent returns the number of the directory of a path, and creates it.
func (c *catalog) parent(p string) uint32 {
	dir := path.Dir(p)
	if e, ok := c.entries[dir]; ok {
		return e.number
	}
	return c.mkdir(c.parent(dir), path.Base(dir), dir, File{Mode: Directory | 0o755})
}

func (c *catalog) mkdir(parent uint32, name, p string, f File) uint32 {
	n := c.number()
	c.entries[p] = entry{n, true}
	c.dirs = append(c.dirs, dirRecord{parent, name, n, f})
	return n
}

// private returns the directory of linked files or directories, and creates it.
func (c *catalog) private(isDir bool) uint32 {
	i, name := boolean(isDir), privateFiles
	if isDir {
		name = privateDirs
	}
	if c.hidden[i] == 0 {
		c.hidden[i] = c.mkdir(rootDir, name, "\x00"+name, File{Mode: Directory})
	}
	return c.hidden[i]
}

// add adds a file.
func (c *catalog) add(f *File) {
	if e, ok := c.entries[f.Path]; ok && e.isDir {
		return
	}
	parent, name := c.parent(f.Path), path.Base(f.Path)
	if f.Same != "" {
		first, ok := c.entries[f.Same]
		if !ok && c.w.err == nil {
			c.w.err = fmt.Errorf("%s is the same as %s, which is not there yet", f.Path, f.Same)
		}
		c.addName(parent, name, first)
		return
	}
	isDir, to, as := f.Mode&0o170000 == Directory, parent, name
	if c.linked[f.Path] > 0 {
		to = c.private(isDir)
	}
	number := c.next
	if c.linked[f.Path] > 0 {
		as = "iNode" + strconv.Itoa(int(number))
		if isDir {
			as = "dir_" + strconv.Itoa(int(number))
		}
	}
	if isDir {
		c.mkdir(to, as, f.Path, *f)
	} else {
		c.number()
		c.entries[f.Path] = entry{number, false}
		c.file(to, as, number, f)
	}
	if c.linked[f.Path] > 0 {
		link := c.addName(parent, name, c.entries[f.Path])
		if isDir {
			c.attribute(number, "com.apple.system.hfs.firstlink", []byte(strconv.Itoa(int(link))))
		}
	}
}

// common returns the fields that the records of directories and files have at the same places.
func common(kind uint16, size int, number uint32, f *File) []byte {
	b := make([]byte, size)
	be.PutUint16(b, kind)
	be.PutUint32(b[8:], number)
	for _, at := range []int{12, 16, 20, 24} {
		be.PutUint32(b[at:], uint32(cmp.Or(f.Time, defaultTime)+timeOffset))
	}
	if !f.NoMode {
		be.PutUint32(b[32:], 501)
		be.PutUint32(b[36:], 20)
		be.PutUint16(b[42:], f.Mode)
	}
	return b
}

// file adds the record of a file with its content.
func (c *catalog) file(dir uint32, name string, number uint32, f *File) {
	c.fileCount++
	c.valence[dir]++
	g := *f
	if g.Mode == 0 {
		g.Mode = Regular | 0o644
	}
	data, resource := g.Data, []byte(nil)
	if g.Target != "" {
		g.Mode, data = Link|0o755, []byte(g.Target)
	}
	b := common(2, 248, number, &g)
	if g.Target != "" {
		copy(b[48:], "slnkrhap")
	}
	be.PutUint16(b[2:], 2) // it has a thread
	if g.Compression != 0 {
		var attr []byte
		attr, resource = decmpfstest.Compress(g.Compression, g.Data, g.Stored)
		c.attribute(number, "com.apple.decmpfs", attr)
		data, b[41] = nil, 0x20
	}
	pieces := max(1, g.Pieces)
	copy(b[88:], c.w.store(number, 0, data, pieces).bytes())
	copy(b[168:], c.w.store(number, 0xff, resource, pieces).bytes())
	be.PutUint32(b[44:], max(1, uint32(c.linked[f.Path]))) // names
	c.put(dir, name, number, b)
}

// addName adds a name of a linked file or directory, and returns its number.
func (c *catalog) addName(parent uint32, name string, of entry) uint32 {
	c.fileCount++
	c.valence[parent]++
	n := c.number()
	b := common(2, 248, n, &File{Mode: Regular | 0o444})
	be.PutUint16(b[2:], 2|0x20)
	be.PutUint32(b[44:], of.number)
	copy(b[48:], "hlnkhfs+")
	if of.isDir {
		copy(b[48:], "fdrpMACS")
	}
	c.put(parent, name, n, b)
	return n
}

// attribute adds an attribute.
func (c *catalog) attribute(number uint32, name string, value []byte) {
	k := be.AppendUint32(be.AppendUint32([]byte{0, 0}, number), 0)
	k = append(k, key(0, name)[4:]...)
	b := make([]byte, 16, 16+len(value))
	be.PutUint32(b, 0x10)
	be.PutUint32(b[12:], uint32(len(value)))
	c.attributes = append(c.attributes, record{k, append(b, value...)})
}
