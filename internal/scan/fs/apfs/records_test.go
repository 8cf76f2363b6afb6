package apfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/decmpfs"
)

// rec is a record of a tree.
type rec struct{ key, value []byte }

// leafOf creates a tree of one node, with records in the given order.
func leafOf(t *testing.T, list ...rec) *tree {
	t.Helper()
	b := make([]byte, 16<<10)
	le.PutUint16(b[32:], nodeLeaf)
	le.PutUint32(b[36:], uint32(len(list)))
	le.PutUint16(b[42:], uint16(8*len(list)))
	keys, values := 56+8*len(list), len(b)
	from := keys
	for i, r := range list {
		copy(b[keys:], r.key)
		values -= len(r.value)
		copy(b[values:], r.value)
		for k, v := range []int{keys - from, len(r.key), len(b) - values, len(r.value)} {
			le.PutUint16(b[56+8*i+2*k:], uint16(v))
		}
		keys += len(r.key)
	}
	n, err := parseNode(b)
	if err != nil {
		t.Fatal(err)
	}
	return &tree{device: &device{nodeCache: newGenerationCache[nodeKey, *node](10)}, root: n}
}

func filesOf(t *testing.T, list ...rec) *FS {
	t.Helper()
	tr := leafOf(t, list...)
	return &FS{
		device: tr.device, tree: tr, inodeCache: newGenerationCache[uint64, *inode](10),
		blockCache: decmpfs.NewCache(),
	}
}

func keyOf(id uint64, kind uint8, rest ...byte) []byte {
	return append(le.AppendUint64(nil, id|uint64(kind)<<kindShift), rest...)
}

func inodeRec(id, parent uint64, mode uint16, flags uint32) rec {
	b := make([]byte, inodeHeaderSize)
	le.PutUint64(b, parent)
	le.PutUint16(b[80:], mode)
	le.PutUint32(b[68:], flags)
	return rec{keyOf(id, recordInode), b}
}

func entryRec(dir uint64, name string, id uint64, kind uint16) rec {
	key := keyOf(dir, recordEntry, append([]byte{byte(len(name) + 1), 0}, name+"\x00"...)...)
	v := make([]byte, 18)
	le.PutUint64(v, id)
	le.PutUint16(v[16:], kind)
	return rec{key, v}
}

func attrRec(id uint64, name string, data []byte) rec {
	key := keyOf(id, recordXattr, append([]byte{byte(len(name) + 1), 0}, name+"\x00"...)...)
	return rec{key, append(le.AppendUint16(le.AppendUint16(nil, attrEmbedded), uint16(len(data))), data...)}
}

func extentRec(id, off, length, block uint64) rec {
	return rec{keyOf(id, recordExtent,
		le.AppendUint64(nil, off)...), le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, length), block), 0)}
}

// Extents that are in order are read, with holes as zeros; all others are damage.
func TestExtentRecords(t *testing.T) {
	const size = 8 * 4096
	disk := make([]byte, 10*4096)
	for i := range disk {
		disk[i] = byte(i/4096) + 1
	}
	for name, c := range map[string]struct {
		list []rec
		want string // a digit for each block: its content; "" = it is damaged
	}{
		"none":          {nil, "00000000"},
		"all":           {[]rec{extentRec(5, 0, size, 1)}, "23456789"},
		"holes":         {[]rec{extentRec(5, 4096, 4096, 1), extentRec(5, 3*4096, 8192, 4)}, "02056000"},
		"without place": {[]rec{extentRec(5, 0, 8192, 0), extentRec(5, 8192, 4096, 3)}, "00400000"},
		"of others": {
			[]rec{extentRec(4, 0, size, 1), extentRec(5, 0, 4096, 1), extentRec(6, 0, size, 1)},
			"20000000",
		},
		"empty":         {[]rec{extentRec(5, 0, 0, 1), extentRec(5, 4096, 4096, 1)}, "02000000"},
		"longer":        {[]rec{extentRec(5, 7*4096, 8192, 1)}, "00000002"},
		"flags above":   {[]rec{extentRec(5, 0, 4096|7<<56, 1)}, "20000000"},
		"overlap":       {[]rec{extentRec(5, 0, 8192, 1), extentRec(5, 4096, 4096, 1)}, ""},
		"far away":      {[]rec{extentRec(5, 0, 4096, 1), extentRec(5, maxFileBytes+1, 4096, 1)}, ""},
		"at the limit":  {[]rec{extentRec(5, 0, 4096, 1), extentRec(5, maxFileBytes, 4096, 1)}, "20000000"},
		"before it":     {[]rec{extentRec(5, 0, 4096, 1), extentRec(5, 1<<63, 4096, 1)}, "20000000"},
		"ends behind 0": {[]rec{extentRec(5, 1<<64-4096, 8192, 1)}, ""},
		"behind all":    {[]rec{extentRec(5, 0, 4096, 100)}, ""},
	} {
		f := filesOf(t, c.list...)
		f.device.r, f.device.size, f.device.blockSize, f.device.blockCount = bytes.NewReader(disk), int64(len(disk)),
			4096, 10
		s := &dataStream{fs: f, id: 5, size: size}
		got := make([]byte, size)
		n, err := s.ReadAt(got, 0)
		if c.want == "" {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %d, %v", name, n, err)
			}
			continue
		}
		var digits []byte
		for b := range slices.Chunk(got, 4096) {
			digits = append(digits, '0'+b[0])
			if b[0] != b[4095] {
				t.Errorf("%s: a block is in pieces", name)
			}
		}
		if string(digits) != c.want || n != size || err != nil {
			t.Errorf("%s: %s, %d, %v, want %s", name, digits, n, err, c.want)
		}
	}
	s := &dataStream{fs: filesOf(t), id: 5, size: size}
	if _, err := s.ReadAt(make([]byte, 1), -1); !errors.Is(err, errNegativeOffset) {
		t.Errorf("%v", err)
	}
	for off, want := range map[int64]int{size - 3: 3, size: 0, size + 1: 0} {
		if n, err := s.ReadAt(make([]byte, 10), off); n != want || !errors.Is(err, io.EOF) {
			t.Errorf("at %d: %d, %v", off, n, err)
		}
	}
}

// Names resolve to inodes of this volume, each directory by one path; an invalid name is reported,
// next to the valid ones.
func TestNamesOfDirectory(t *testing.T) {
	short := entryRec(2, "s", 16, 8)
	short.value = short.value[:17]
	list := []rec{
		inodeRec(2, 1, modeDir|0o755, 0),
		entryRec(2, "", 16, 8), entryRec(2, ".", 16, 8), entryRec(2, "..", 16, 8), entryRec(2, "a/b", 16, 8),
		entryRec(2, "d", 17, 4),
		entryRec(2, "e", 18, 4), entryRec(2, "f", 16, 8), entryRec(2, "l", 19, 10), entryRec(2, "m", 99, 8),
		entryRec(2, "n", 20, 10), entryRec(2, "o", 16, 0), short,
		inodeRec(16, 2, modeRegular|0o644, 0), inodeRec(17, 2, modeDir|0o755, 0), entryRec(17, "x", 16, 8),
		inodeRec(18, 17, modeDir|0o755, 0),
		inodeRec(19, 2, modeLink|0o777, 0), attrRec(19, attrSymlink, []byte("d/../f\x00")),
		inodeRec(20, 2, modeLink|0o777, 0),
	}
	f := filesOf(t, list...)
	entries, err := f.ReadDir(".")
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if strings.Join(names, "") != "deflmno" || !errors.Is(err, ErrDamaged) {
		t.Errorf("%q, %v", names, err)
	}
	if entries[len(entries)-1].Type() != 0 { // only the inode has the type
		t.Errorf("o is a %v", entries[len(entries)-1].Type())
	}
	for path, want := range map[string]error{
		"d": nil, "f": nil, "l": nil, "d/x": nil, "e": ErrDamaged, "m": ErrDamaged, "n": ErrDamaged, "s": ErrDamaged,
		"z": fs.ErrNotExist, "f/x": fs.ErrNotExist, "n/x": ErrDamaged,
	} {
		for op, try := range map[string]func() error{
			"stat": func() error { _, err := f.Stat(path); return err },
			"open": func() error { _, err := f.Open(path); return err },
		} {
			var told *fs.PathError
			if err := try(); !errors.Is(err, want) ||
				err != nil && (!errors.As(err, &told) || told.Op != op || told.Path != path) {
				t.Errorf("%s of %s: %v, want %v", op, path, err, want)
			}
		}
	}
	for _, path := range []string{"z", "m"} {
		_, stat := f.Lstat(path)
		_, link := f.ReadLink(path)
		_, list := f.ReadDir(path)
		_, attrs := f.Xattrs(path)
		_, attr := f.Xattr(path, "x")
		for _, err := range []error{stat, link, list, attrs, attr} {
			if err == nil {
				t.Errorf("%s is there", path)
			}
		}
	}
	if got, err := f.ReadLink("l"); got != "d/../f" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, path := range []string{"f", "d"} {
		if _, err := f.ReadLink(path); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s as a link: %v", path, err)
		}
	}
	if _, err := f.ReadLink("n"); !errors.Is(err, ErrDamaged) {
		t.Errorf("a link without a target: %v", err)
	}
	if _, err := f.ReadDir("f"); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a file as a folder: %v", err)
	}
	for _, name := range []string{"", "/f", "d//x"} {
		if _, err := f.Stat(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, id := range map[string]uint64{"e": 18, "m": 99} {
		e := &dirEntry{fs: f, name: name, dirInode: 2, inodeNumber: id, mode: fs.ModeDir}
		_, told := e.Info()
		_, opened := e.Open()
		_, listed := e.ReadDir()
		if told == nil || opened == nil || listed == nil {
			t.Errorf("%s: %v, %v, %v", name, told, opened, listed)
		}
	}
	if _, err := f.readInode(1 << 50); !errors.Is(err, ErrDamaged) {
		t.Errorf("an inode behind the last: %v", err)
	}
}

// A name in ASCII is stored after its own hash, and nowhere else.
func TestHashedNames(t *testing.T) {
	hashed := func(name string, hash uint64) rec {
		r := entryRec(2, name, 16, 8)
		r.key = append(keyOf(2, recordEntry),
			append(le.AppendUint32(nil, uint32(hash<<hashShift|uint64(len(name)+1))), name+"\x00"...)...)
		return r
	}
	list := []rec{hashed("abc", nameHash("abc")), hashed("xyz", nameHash("xyz")+1), hashed("zz", nameHash("abc"))}
	slices.SortFunc(list, func(a, b rec) int { return int(le.Uint32(a.key[8:])) - int(le.Uint32(b.key[8:])) })
	f := filesOf(t, list...)
	f.hashedNames = true
	for name, want := range map[string]bool{"abc": true, "ABC": false, "xyz": false, "zz": false, "b": false} {
		if _, err := f.lookup(2, name); (err == nil) != want || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.foldsCase = true
	if _, err := f.lookup(2, "ABC"); err != nil {
		t.Errorf("in upper case: %v", err)
	}
}

// Compressed files have a header with the method, within the limits.
func TestCompressionHeader(t *testing.T) {
	const (
		magic   = 0x636d7066
		largest = 32 << 30 // bytes of a file
		inline  = 4 << 20  // bytes of a file in its attribute
	)
	head := func(magic, kind uint32, size uint64, rest string) []byte {
		return append(le.AppendUint64(le.AppendUint32(le.AppendUint32(nil, magic), kind), size), rest...)
	}
	for name, c := range map[string]struct {
		attr []byte
		want string // content
		bad  error
	}{
		"plain":         {head(magic, 1, 5, "plain"), "plain", nil},
		"stored":        {head(magic, 9, 5, "xplain"), "plain", nil},
		"other magic":   {head(magic+1, 1, 5, "plain"), "", ErrDamaged},
		"short":         {head(magic, 1, 5, "")[:15], "", ErrDamaged},
		"none":          {nil, "", ErrDamaged},
		"below zero":    {head(magic, 1, 1<<63, "plain"), "", ErrDamaged},
		"too large":     {head(magic, 4, largest+1, ""), "", ErrDamaged},
		"no fork":       {head(magic, 4, largest, ""), "", ErrDamaged},
		"large inline":  {head(magic, 1, inline+1, "plain"), "", ErrDamaged},
		"other length":  {head(magic, 1, inline, "plain"), "", ErrDamaged},
		"kind 0":        {head(magic, 0, 5, "plain"), "", ErrUnsupported},
		"kind 2":        {head(magic, 2, 5, "plain"), "", ErrUnsupported},
		"kind 5":        {head(magic, 5, 5, "plain"), "", ErrUnsupported},
		"kind 6":        {head(magic, 6, 5, "plain"), "", ErrUnsupported},
		"kind 15":       {head(magic, 15, 5, "plain"), "", ErrUnsupported},
		"kind 14 alone": {head(magic, 14, 5, "plain"), "", ErrDamaged},
	} {
		list := []rec{
			inodeRec(2, 1, modeDir|0o755, 0), entryRec(2, "f", 16, 8),
			inodeRec(16, 2, modeRegular|0o644, decmpfs.FlagCompressed), attrRec(16, decmpfs.Attribute, c.attr),
		}
		if c.attr == nil {
			list = list[:3]
		}
		got, err := fs.ReadFile(filesOf(t, list...), "f")
		if string(got) != c.want || !errors.Is(err, c.bad) {
			t.Errorf("%s: %q, %v, want %v", name, got, err, c.bad)
		}
	}
}

// An object is in the block of its newest entry that is not too new, unless that is invalid.
func TestObjects(t *testing.T) {
	entry := func(id, xid uint64, flags uint32, block uint64) rec {
		v := le.AppendUint64(le.AppendUint32(le.AppendUint32(nil, flags), 4096), block)
		return rec{le.AppendUint64(le.AppendUint64(nil, id), xid), v}
	}
	bare := entry(9, 1, 0, 90)
	bare.value = bare.value[:15]
	m := &omap{
		tree: leafOf(t, entry(5, 2, 0, 50), entry(5, 4, omapNoHeader, 51), entry(6, 1, omapDeleted, 60),
			entry(7, 1, omapEncrypted, 70), bare),
		cache: newGenerationCache[omapKey, omapEntry](10),
	}
	for range 2 { // the second time from the cache
		for _, c := range []struct {
			id, xid, block uint64
			bad            error
		}{
			{5, 2, 50, nil},
			{5, 3, 50, nil},
			{5, 4, 51, nil},
			{5, 100, 51, nil},
			{5, 1, 0, ErrDamaged},
			{4, 100, 0, ErrDamaged},
			{6, 1, 0, ErrDamaged},
			{6, 0, 0, ErrDamaged},
			{7, 1, 0, ErrEncrypted},
			{8, 1, 0, ErrDamaged},
			{9, 1, 0, ErrDamaged},
			{10, 1, 0, ErrDamaged},
		} {
			if e, err := m.find(c.id, c.xid); !errors.Is(err, c.bad) || err == nil && e.block != c.block {
				t.Errorf("object %d as of %d: %+v, %v", c.id, c.xid, e, err)
			}
		}
	}
}

// A list of firmlinks that is invalid, or too long, is reported.
func TestFirmlinkFile(t *testing.T) {
	path := []rec{
		inodeRec(2, 1, modeDir, 0), entryRec(2, "usr", 16, 4), inodeRec(16, 2, modeDir, 0),
		entryRec(16, "share", 17, 4), inodeRec(17, 16, modeDir, 0),
		entryRec(17, "firmlinks", 18, 8),
	}
	sized := func(size uint64) rec {
		r := inodeRec(18, 17, modeRegular, 0)
		r.value = append(r.value, append([]byte{1, 0, 8, 0, fieldStream, 0, 8, 0}, le.AppendUint64(nil, size)...)...)
		return r
	}
	for name, c := range map[string]struct {
		last rec
		bad  error
	}{
		"a directory": {inodeRec(18, 17, modeDir, 0), ErrUnsupported},
		"largest":     {sized(maxFirmlinkFileBytes), nil},
		"larger":      {sized(maxFirmlinkFileBytes + 1), ErrUnsupported},
		"not there":   {inodeRec(19, 17, modeRegular, 0), ErrDamaged},
		"cloud only":  {inodeRec(18, 17, modeRegular, flagDataless), errDataless},
	} {
		if _, err := filesOf(t, append(slices.Clone(path), c.last)...).Firmlinks(); !errors.Is(err, c.bad) {
			t.Errorf("%s: %v, want %v", name, err, c.bad)
		}
	}
}

// A flag of a node states that it has no header, and it has none.
func TestHeadless(t *testing.T) {
	b := make([]byte, 64)
	if hasNoHeader(b) {
		t.Error("a node that does not say so")
	}
	b[32] = nodeNoHeader
	if !hasNoHeader(b) {
		t.Error("a node that says so")
	}
	b[31] = 1
	if hasNoHeader(b) {
		t.Error("a node with a header")
	}
}

// A read error is reported as such, and is not mistaken for damaged content.
func TestObjectOfDevice(t *testing.T) {
	b := make([]byte, 2*4096)
	d := &device{r: bytes.NewReader(b), size: int64(len(b)), blockSize: 4096, blockCount: 3}
	for block, want := range map[uint64]string{0: "type 0x0, not 0xb", 2: "past its end", 3: "outside of it"} {
		if block == 0 {
			le.PutUint64(b, checksum(b[8:4096]))
		}
		if _, err := d.readObject(block, typeOMap); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("block %d: %v, want %q", block, err, want)
		}
	}
	if _, err := d.readObject(1, typeOMap); err == nil ||
		strings.Contains(err.Error(), "not 0xb") == strings.Contains(err.Error(), "checksum") {
		t.Errorf("zeros: %v", err)
	}
	d.r = unreadable{}
	if _, err := d.readObject(0, typeOMap); !errors.Is(err, errUnreadable) {
		t.Errorf("%v", err)
	}
	tr := leafOf(t, rec{keyOf(1, 1), make([]byte, 7)}, rec{keyOf(2, 1), nil})
	for i := range 2 {
		if _, err := tr.readChild(tr.root, i); !errors.Is(err, ErrDamaged) ||
			!strings.Contains(err.Error(), "names no child") {
			t.Errorf("record %d: %v", i, err)
		}
	}
}
