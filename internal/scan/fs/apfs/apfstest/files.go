package apfstest

import (
	"bytes"
	"cmp"
	"hash/crc32"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/buildyard/buildyard/internal/scan/fs/decmpfs/decmpfstest"
)

// File describes a file, directory or link. Its parent directories are created.
type File struct {
	Path string
	Mode uint16 // of Unix, with the type; 0 for a file that all may read
	Data []byte
	// Size is that of the file, if it is not that of its data: the rest is a hole.
	Size int64
	// Holes are the blocks of the file that are not written.
	Holes []int
	// Scattered writes each block as a separate extent, in another order.
	Scattered bool
	Target    string // of a symbolic link
	Same      string // path of an earlier file of which this is another name
	Xattrs    map[string][]byte
	Flags     uint32 // st_flags of BSD
	// Compression is the kind of com.apple.decmpfs; 0 for none. Stored writes uncompressed blocks,
	// as writers do when compression gains nothing.
	Compression uint32
	Stored      bool
}

// Types of files.
const (
	Directory = 0o040000
	Regular   = 0o100000
	Link      = 0o120000
	FIFO      = 0o010000
)

// catalog collects the records of a volume.
type catalog struct {
	w       *writer
	v       *Volume
	records []record
	extents []record // of a sealed volume
	next    uint64   // inode
	ids     map[string]uint64
	names   map[string]uint32 // of files, besides their first one
}

func newCatalog(w *writer, v *Volume) *catalog {
	c := &catalog{w: w, v: v, next: 16, ids: map[string]uint64{".": 2}, names: map[string]uint32{}}
	c.entry(1, "root", 2, Directory)
	c.entry(1, "private-dir", 3, Directory)
	c.inode(2, 1, "root", &File{Mode: Directory | 0o755})
	c.inode(3, 1, "private-dir", &File{Mode: Directory | 0o755})
	return c
}

func (c *catalog) add(files []File) {
	for _, f := range files {
		if f.Same != "" {
			c.names[f.Same]++
		}
	}
	for i := range files {
		f := &files[i]
		parent := c.dir(path.Dir(f.Path))
		name := path.Base(f.Path)
		mode := f.Mode
		if mode == 0 {
			mode = Regular | 0o644
		}
		if f.Target != "" {
			mode = Link | 0o755
		}
		if f.Same != "" {
			id := c.ids[f.Same]
			c.entry(parent, name, id, mode)
			c.sibling(id, parent, name)
			continue
		}
		if _, ok := c.ids[f.Path]; ok {
			continue // an existing directory
		}
		id := c.next
		c.next++
		c.ids[f.Path] = id
		c.entry(parent, name, id, mode)
		if c.names[f.Path] > 0 {
			c.sibling(id, parent, name)
		}
		f2 := *f
		f2.Mode = mode
		c.inode(id, parent, name, &f2)
	}
}

// dir returns the number of a directory, and creates a new one.
func (c *catalog) dir(p string) uint64 {
	if id, ok := c.ids[p]; ok {
		return id
	}
	parent := c.dir(path.Dir(p))
	id := c.next
	c.next++
	c.ids[p] = id
	c.entry(parent, path.Base(p), id, Directory)
	c.inode(id, parent, path.Base(p), &File{Mode: Directory | 0o755})
	return id
}

// key returns the beginning of the key of a record.
func key(id uint64, kind uint8) []byte {
	return le.AppendUint64(nil, id|uint64(kind)<<60)
}

// byKey compares records of a catalog: by number, kind, and what follows.
func byKey(hashed bool) func(a, b record) int {
	return func(a, b record) int {
		x, y := le.Uint64(a.key), le.Uint64(b.key)
		const mask = 1<<60 - 1
		if c := cmp.Or(cmp.Compare(x&mask, y&mask), cmp.Compare(x>>60, y>>60)); c != 0 {
			return c
		}
		ka, kb := a.key[8:], b.key[8:]
		switch kind := x >> 60; {
		case kind == 8 || kind == 5: // a number
			return cmp.Compare(le.Uint64(ka), le.Uint64(kb))
		case kind == 9 && hashed:
			return cmp.Or(cmp.Compare(le.Uint32(ka), le.Uint32(kb)), bytes.Compare(ka[4:], kb[4:]))
		case len(ka) >= 2:
			return bytes.Compare(ka[2:], kb[2:])
		}
		return 0
	}
}

// byNumbers compares the extents of a sealed volume.
func byNumbers(a, b record) int {
	return cmp.Or(cmp.Compare(le.Uint64(a.key), le.Uint64(b.key)),
		cmp.Compare(le.Uint64(a.key[8:]), le.Uint64(b.key[8:])))
}

// entry adds a name to a directory.
func (c *catalog) entry(parent uint64, name string, id uint64, mode uint16) {
	k := key(parent, 9)
	value := le.AppendUint64(nil, id)
	value = le.AppendUint64(value, 1_500_000_000_000_000_000)
	value = le.AppendUint16(value, mode>>12)
	if c.v.hashed() {
		k = le.AppendUint32(k, c.hash(name)<<10|uint32(len(name)+1))
	} else {
		k = le.AppendUint16(k, uint16(len(name)+1))
	}
	c.records = append(c.records, record{append(k, name+"\x00"...), value})
}

// hash returns the 22 bits that names are sorted by.
func (c *catalog) hash(name string) uint32 {
	name = norm.NFD.String(name)
	if !c.v.CaseOnly {
		name = norm.NFD.String(cases.Fold().String(name))
	}
	var b []byte
	for _, r := range name {
		b = le.AppendUint32(b, uint32(r))
	}
	sum := ^crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) & (1<<22 - 1)
	if c.v.WrongHashes {
		sum ^= 0x155555
	}
	return sum
}

// sibling adds one of the names of a file that has several.
func (c *catalog) sibling(id, parent uint64, name string) {
	sid := c.next
	c.next++
	k := le.AppendUint64(key(id, 5), sid)
	value := le.AppendUint16(le.AppendUint64(nil, parent), uint16(len(name)+1))
	c.records = append(c.records,
		record{k, append(value, name+"\x00"...)},
		record{key(sid, 12), le.AppendUint64(nil, id)})
}

// inode adds a file with its data and attributes.
func (c *catalog) inode(id, parent uint64, name string, f *File) {
	b := make([]byte, 92)
	le.PutUint64(b, parent)
	le.PutUint64(b[8:], id)
	for i := range 4 {
		le.PutUint64(b[16+8*i:], uint64(1_500_000_000_000_000_000+i))
	}
	le.PutUint32(b[56:], 1+c.names[f.Path])
	flags := f.Flags
	if f.Compression != 0 {
		flags |= 0x20
		if len(f.Data) != 1 { // as macOS does; older systems left it to the attribute
			le.PutUint64(b[48:], 0x40000)
			le.PutUint64(b[84:], uint64(len(f.Data)))
		}
	}
	le.PutUint32(b[68:], flags)
	le.PutUint32(b[72:], 501)
	le.PutUint32(b[76:], 20)
	le.PutUint16(b[80:], f.Mode)
	fields := [][2]any{{uint8(4), []byte(name + "\x00")}}
	if f.Mode&0o170000 == Regular && f.Compression == 0 {
		size := max(f.Size, int64(len(f.Data)))
		fields = append(fields, [2]any{uint8(8), stream(size)})
		c.records = append(c.records, record{key(id, 6), le.AppendUint32(nil, 1)})
		c.stream(id, f.Data, f)
	}
	b = append(b, blob(fields)...)
	c.records = append(c.records, record{key(id, 3), b})
	for _, k := range slices.Sorted(maps.Keys(f.Xattrs)) {
		c.xattr(id, k, f.Xattrs[k])
	}
	if f.Target != "" {
		c.xattr(id, "com.apple.fs.symlink", []byte(f.Target+"\x00"))
	}
	if f.Compression != 0 {
		head, fork := decmpfstest.Compress(f.Compression, f.Data, f.Stored)
		c.xattr(id, "com.apple.decmpfs", head)
		if fork != nil {
			c.xattr(id, "com.apple.ResourceFork", fork)
		}
	}
}

// stream returns the value of a data stream.
func stream(size int64) []byte {
	b := le.AppendUint64(nil, uint64(size))
	b = le.AppendUint64(b, uint64(size+BlockSize-1)&^(BlockSize-1))
	return append(b, make([]byte, 24)...)
}

// blob encodes extended fields.
func blob(fields [][2]any) []byte {
	var list, values []byte
	for _, f := range fields {
		v := f[1].([]byte)
		list = append(list, f[0].(uint8), 2)
		list = le.AppendUint16(list, uint16(len(v)))
		values = append(values, v...)
		values = append(values, make([]byte, -len(v)&7)...)
	}
	b := le.AppendUint16(nil, uint16(len(fields)))
	b = le.AppendUint16(b, uint16(len(values)))
	return append(append(b, list...), values...)
}

// xattr adds an extended attribute; a long one is a stream.
func (c *catalog) xattr(id uint64, name string, data []byte) {
	k := le.AppendUint16(key(id, 4), uint16(len(name)+1))
	k = append(k, name+"\x00"...)
	flags, value := uint16(2), data
	if strings.HasPrefix(name, "com.apple.fs.") {
		flags |= 4
	}
	if len(data) > 3804 || name == "com.apple.ResourceFork" {
		sid := c.next
		c.next++
		flags, value = 1, append(le.AppendUint64(nil, sid), stream(int64(len(data)))...)
		c.stream(sid, data, &File{})
	}
	v := le.AppendUint16(le.AppendUint16(nil, flags), uint16(len(value)))
	c.records = append(c.records, record{k, append(v, value...)})
}

// stream writes data and its extents.
func (c *catalog) stream(id uint64, data []byte, f *File) {
	blocks := (len(data) + BlockSize - 1) / BlockSize
	if blocks == 0 {
		return
	}
	start := c.w.alloc(blocks)
	put := func(i, n int, at uint64) {
		part := make([]byte, n*BlockSize)
		copy(part, data[i*BlockSize:])
		if c.w.cipher != nil {
			part = c.w.cipher.encrypt(part, at+c.v.TweakOffset)
		}
		c.w.put(at, part)
		c.extent(id, uint64(i)*BlockSize, uint64(n)*BlockSize, at)
	}
	if !f.Scattered && len(f.Holes) == 0 {
		put(0, blocks, start)
		return
	}
	for i := range blocks {
		switch at := start + uint64(blocks-1-i); {
		case slices.Contains(f.Holes, i) && i%2 == 0:
			c.extent(id, uint64(i)*BlockSize, BlockSize, 0)
		case slices.Contains(f.Holes, i): // without an extent
		default:
			put(i, 1, at)
		}
	}
}

func (c *catalog) extent(id, off, length, block uint64) {
	value := le.AppendUint64(le.AppendUint64(nil, length), block)
	if c.v.Sealed {
		c.extents = append(c.extents, record{le.AppendUint64(le.AppendUint64(nil, id), off), value})
		return
	}
	tweak := uint64(0)
	if c.w.cipher != nil {
		tweak = block + c.v.TweakOffset
	}
	c.records = append(c.records, record{le.AppendUint64(key(id, 8), off), le.AppendUint64(value, tweak)})
}
