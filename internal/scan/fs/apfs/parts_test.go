package apfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/decmpfs"
)

// rawNode creates a node: header, table of contents, keys from its end on, values from the end
// down.
func rawNode(change func(b []byte)) []byte {
	b := make([]byte, 512)
	le.PutUint16(b[32:], nodeLeaf)
	le.PutUint32(b[36:], 2)
	le.PutUint16(b[42:], 16) // of the table
	change(b)
	return b
}

// A node is accepted up to the bounds of its block, and refused beyond them.
func TestParseNode(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b []byte)
		bad    bool
	}{
		"as it is":       {func([]byte) {}, false},
		"one too many":   {func(b []byte) { b[36] = 3 }, true},
		"fixed":          {func(b []byte) { b[32] |= nodeFixed; b[36] = 4 }, false},
		"fixed, more":    {func(b []byte) { b[32] |= nodeFixed; b[36] = 5 }, true},
		"table to end":   {func(b []byte) { le.PutUint16(b[42:], 512-56) }, false},
		"table over end": {func(b []byte) { le.PutUint16(b[42:], 512-55) }, true},
		"root":           {func(b []byte) { b[32] |= nodeRoot; le.PutUint16(b[42:], 512-56-40) }, false},
		"root, over end": {func(b []byte) { b[32] |= nodeRoot; le.PutUint16(b[42:], 512-56-39) }, true},
		"table behind":   {func(b []byte) { le.PutUint16(b[40:], 500) }, true},
		"leaf above":     {func(b []byte) { b[34] = 1 }, true},
		"no leaf below":  {func(b []byte) { b[32] = 0 }, true},
		"highest":        {func(b []byte) { b[32] = 0; b[34] = maxTreeLevel }, false},
		"higher":         {func(b []byte) { b[32] = 0; b[34] = maxTreeLevel + 1 }, true},
		"all bits":       {func(b []byte) { le.PutUint32(b[36:], math.MaxUint32) }, true},
	} {
		if _, err := parseNode(rawNode(c.change)); errors.Is(err, ErrDamaged) != c.bad || err != nil && !c.bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Keys and values are the bytes at the offsets in the table, within the node.
func TestKeysAndValues(t *testing.T) {
	open := func(change func(b []byte)) *node {
		n, err := parseNode(rawNode(change))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	put := func(b []byte, v ...uint16) { // the first entry of the table
		for i, v := range v {
			le.PutUint16(b[56+2*i:], v)
		}
	}
	const keys, end = 56 + 16, 512
	for name, c := range map[string]struct {
		change     func(b []byte)
		key, value []int // first byte and the one after the last; nil = none
	}{
		"variable": {func(b []byte) { put(b, 8, 4, 20, 10) }, []int{keys + 8, keys +
			12}, []int{end - 20, end - 10}},
		"key to the end": {func(b []byte) { put(b, 8, end-keys-8, 20, 20) }, []int{keys +
			8, end}, []int{end - 20, end}},
		"over the end":   {func(b []byte) { put(b, 8, end-keys-7, 20, 21) }, nil, nil},
		"no value":       {func(b []byte) { put(b, 0, 4, noValueOffset, 0) }, []int{keys, keys + 4}, nil},
		"value at keys":  {func(b []byte) { put(b, 0, 4, end-keys, 5) }, []int{keys, keys + 4}, []int{keys, keys + 5}},
		"value in table": {func(b []byte) { put(b, 0, 4, end-keys+1, 5) }, []int{keys, keys + 4}, nil},
		"fixed": {func(b []byte) { b[32] |= nodeFixed; put(b, 8, 20) }, []int{keys + 8, keys +
			14}, []int{end - 20, end - 4}},
		"fixed, inner": {func(b []byte) { b[32], b[34] = nodeFixed, 1; put(b, 8, 20) }, []int{keys + 8, keys +
			14}, []int{end - 20, end - 12}},
		"fixed, short": {func(b []byte) { b[32] |= nodeFixed; put(b, 8, 15) }, []int{keys + 8, keys + 14}, nil},
		"fixed, exactly": {func(b []byte) { b[32] |= nodeFixed; put(b, 8, 16) }, []int{keys + 8, keys +
			14}, []int{end - 16, end}},
	} {
		n := open(func(b []byte) {
			for i := range b {
				if i >= 56 {
					b[i] = byte(i)
				}
			}
			c.change(b)
		})
		for what, got := range map[string][]byte{"key": n.key(0, 6), "value": n.value(0, 16)} {
			want := c.key
			if what == "value" {
				want = c.value
			}
			if (got == nil) != (want == nil) ||
				got != nil && (!bytes.Equal(got, n.data[want[0]:want[1]]) || cap(got) != len(got)) {
				t.Errorf("%s: %s is %x, want %v", name, what, got, want)
			}
		}
	}
}

// Keys are in the order of the format: by number, then kind, then the fields of the kind.
func TestOrderOfKeys(t *testing.T) {
	key := func(id uint64, kind uint8, rest ...byte) []byte {
		return append(le.AppendUint64(nil, id|uint64(kind)<<kindShift), rest...)
	}
	named := func(id uint64, kind uint8, name string) []byte {
		return append(key(id, kind, byte(len(name)+1), 0), name+"\x00"...)
	}
	hashed := func(id, num uint64, name string) []byte {
		return append(key(id, recordEntry),
			append(le.AppendUint32(nil, uint32(num<<hashShift|uint64(len(name)+1))), name+"\x00"...)...)
	}
	at := func(id, off uint64) []byte { return key(id, recordExtent, le.AppendUint64(nil, off)...) }
	f := &FS{}
	g := &FS{hashedNames: true}
	for _, c := range []struct {
		f    *FS
		list [][]byte
	}{
		{f, [][]byte{
			nil, key(1, recordInode), key(1, recordXattr), named(1, recordXattr, "a"), named(1, recordXattr, "ab"),
			named(1, recordXattr, "b"),
			named(1, recordEntry, "a"), named(1, recordEntry, "b"), key(2, recordInode), named(2, recordEntry, "a"),
			key(1<<60-1, 1),
		}},
		{g, [][]byte{key(1, recordInode), hashed(1, 1, "z"), hashed(1, 2, "a"), hashed(1, 2, "b"), hashed(2, 1, "a")}},
	} {
		for i, a := range c.list[1:] {
			for k, b := range c.list {
				want := k - (i + 1)
				if got := c.f.parseKey(a).compare(b); (got < 0) != (want < 0) || (got > 0) != (want > 0) {
					t.Errorf("%x beside %x: %d", b, a, got)
				}
			}
		}
	}
	for off, want := range map[uint64]int{9: 1, 10: 0, 11: -1} {
		if got := (recordKey{id: 1, kind: recordExtent, hashOrOffset: off}).compare(at(1, 10)); got != want {
			t.Errorf("an extent at 10 beside %d: %d", off, got)
		}
		if got := (extentKey{1, off}).compare(append(le.AppendUint64(nil, 1),
			le.AppendUint64(nil, 10)...)); got != want {
			t.Errorf("an extent at 10 beside %d: %d", off, got)
		}
		if got := (omapKey{1, off}).compare(append(le.AppendUint64(nil, 1), le.AppendUint64(nil, 10)...)); got != want {
			t.Errorf("an object of 10 beside %d: %d", off, got)
		}
		if got := uintKey(off).compare(le.AppendUint64(nil, 10)); got != want {
			t.Errorf("10 beside %d: %d", off, got)
		}
	}
	for _, k := range []searchKey{extentKey{1, 0}, omapKey{1, 0}} {
		if k.compare(make([]byte, 15)) != -1 || k.compare(make([]byte, 16)) != -1 ||
			k.compare(append(le.AppendUint64(nil, 2), make([]byte, 8)...)) != 1 {
			t.Errorf("%T does not compare numbers first", k)
		}
	}
	for n, want := range map[int]bool{7: false, 8: true} {
		if _, ok := parseRecordKey(make([]byte, n)); ok != want {
			t.Errorf("a key of %d bytes: %v", n, ok)
		}
	}
	if uintKey(0).compare(make([]byte, 7)) != -1 {
		t.Error("a short key does not come first")
	}
}

func TestNameOf(t *testing.T) {
	for _, c := range []struct {
		b      []byte
		hashed bool
		num    uint64
		name   string
	}{
		{append(make([]byte, 8), 3, 0, 'a', 'b', 0), false, 0, "ab"},
		{append(make([]byte, 8), 2, 0, 'a', 'b', 'c'), false, 0, "ab"},
		{append(make([]byte, 8), 200, 0, 'a', 'b'), false, 0, "ab"},
		{make([]byte, 9), false, 0, ""},
		{make([]byte, 10), false, 0, ""},
		{append(make([]byte, 8), 3, 4, 0, 0, 'a', 'b', 0), true, 0x403, "ab"},
		{make([]byte, 11), true, 0, ""},
	} {
		if num, name := nameInKey(c.b, c.hashed); num != c.num || string(name) != c.name {
			t.Errorf("%x: %#x, %q, want %#x, %q", c.b, num, name, c.num, c.name)
		}
	}
}

func TestASCII(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "abc": "abc", "@AZ[`az{": "@az[`az{", "aBcD": "abcd", "ABC": "abc", "Z": "z", "A": "a",
	} {
		if got := lowerASCII(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		if !isASCII(in) || normalizeName(in, true) != want || normalizeName(in, false) != in {
			t.Errorf("%q: %q and %q", in, normalizeName(in, true), normalizeName(in, false))
		}
	}
	for _, in := range []string{"\x80", "aä"} {
		if isASCII(in) {
			t.Errorf("%q is ASCII", in)
		}
	}
	if !isASCII("\x7f") {
		t.Error("0x7f is not ASCII")
	}
}

func TestModes(t *testing.T) {
	for m, want := range map[uint16]fs.FileMode{
		modeRegular | 0o644: 0o644, modeDir | 0o1777: fs.ModeDir | fs.ModeSticky | 0o777, modeLink: fs.ModeSymlink,
		modeFIFO:   fs.ModeNamedPipe,
		modeSocket: fs.ModeSocket, modeChar: fs.ModeDevice | fs.ModeCharDevice, modeBlock: fs.ModeDevice,
		0:                    fs.ModeIrregular,
		modeRegular | 0o6755: fs.ModeSetuid | fs.ModeSetgid | 0o755,
	} {
		if got := toFileMode(m); got != want {
			t.Errorf("%#o: %v, want %v", m, got, want)
		}
	}
	for kind, want := range map[uint16]fs.FileMode{
		1: fs.ModeNamedPipe, 2: fs.ModeDevice | fs.ModeCharDevice, 4: fs.ModeDir, 6: fs.ModeDevice, 8: 0,
		10: fs.ModeSymlink, 12: fs.ModeSocket, 0x48: 0,
	} {
		if got, ok := entryType(kind); got != want || !ok {
			t.Errorf("kind %d: %v, %v, want %v", kind, got, ok, want)
		}
	}
	if _, ok := entryType(3); ok {
		t.Error("kind 3 is known")
	}
}

// An inode is read up to the end of its record.
func TestParseInode(t *testing.T) {
	raw := func(flags uint32, internal uint64, fields ...[]byte) []byte {
		b := make([]byte, inodeHeaderSize)
		le.PutUint64(b, 77)
		le.PutUint64(b[8:], 88)
		le.PutUint64(b[48:], internal)
		le.PutUint32(b[68:], flags)
		le.PutUint64(b[84:], 999)
		if len(fields) == 0 {
			return b
		}
		b = append(b, byte(len(fields)), 0, 0, 0)
		for _, f := range fields {
			b = append(b, f[0], 0, byte(len(f)-1), 0)
		}
		for _, f := range fields {
			b = append(append(b, f[1:]...), make([]byte, (8-len(f[1:])%8)%8)...)
		}
		return b
	}
	stream := append([]byte{fieldStream}, le.AppendUint64(nil, 1234)...)
	minus := append([]byte{fieldStream}, le.AppendUint64(nil, 1<<63)...)
	device := append([]byte{fieldDevice}, le.AppendUint32(nil, 55)...)
	for name, c := range map[string]struct {
		b             []byte
		size          int64
		device        uint32
		sized, stream bool
		bad           bool
	}{
		"bare":           {b: raw(0, 0)},
		"cut":            {b: raw(0, 0)[:91], bad: true},
		"three bytes":    {b: append(raw(0, 0), 9, 0, 0)},
		"a stream":       {b: raw(0, 0, stream), size: 1234, stream: true},
		"behind others":  {b: raw(0, 0, []byte{4, 'n'}, device, stream), size: 1234, device: 55, stream: true},
		"short ones":     {b: raw(0, 0, stream[:8], device[:4])},
		"below zero":     {b: raw(0, 0, minus), bad: true},
		"fields cut":     {b: append(raw(0, 0), 1, 0, 0, 0, 8, 0, 8), bad: true},
		"value cut":      {b: raw(0, 0, stream)[:inodeHeaderSize+8+7], bad: true},
		"compressed":     {b: raw(decmpfs.FlagCompressed, hasPlainSize), size: 999, sized: true},
		"not compressed": {b: raw(0, hasPlainSize)},
		"no plain size":  {b: raw(decmpfs.FlagCompressed, 0)},
	} {
		n, err := parseInode(7, c.b)
		if c.bad {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || n.size != c.size || n.stat.Device != c.device || n.sizeIsPlain != c.sized ||
			n.hasStream != c.stream ||
			n.parentInode != 77 || n.streamID != 88 {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
}

// An attribute is in its record or in a stream, as its flags say.
func TestParseAttr(t *testing.T) {
	raw := func(flags, length uint16, data ...byte) []byte {
		return append(le.AppendUint16(le.AppendUint16(nil, flags), length), data...)
	}
	stream := append(le.AppendUint64(nil, 5), le.AppendUint64(nil, 600)...)
	f := &FS{}
	for name, c := range map[string]struct {
		b    []byte
		size int64
		bad  bool
	}{
		"embedded":     {raw(attrEmbedded, 3, 'a', 'b', 'c', 'd'), 3, false},
		"empty":        {raw(attrEmbedded, 0), 0, false},
		"cut":          {raw(attrEmbedded, 3, 'a', 'b'), 0, true},
		"no value":     {make([]byte, 3), 0, true},
		"of no kind":   {raw(0, 1, 'a'), 0, true},
		"a stream":     {raw(attrStream, 16, stream...), 600, false},
		"short stream": {raw(attrStream, 15, stream...), 0, true},
		"below zero":   {raw(attrStream, 16, append(stream[:8:8], le.AppendUint64(nil, 1<<63)...)...), 0, true},
	} {
		a, err := f.parseXattr(c.b)
		if errors.Is(err, ErrDamaged) != c.bad || a.size != c.size {
			t.Errorf("%s: %d bytes, %v", name, a.size, err)
		}
	}
	a := xattr{bytes.NewReader([]byte("value")), 5}
	for most, want := range map[int64]bool{5: true, 4: false} {
		if b, err := a.readAll(most); (err == nil) != want || want && string(b) != "value" {
			t.Errorf("at most %d bytes: %q, %v", most, b, err)
		}
	}
	if _, err := (xattr{bytes.NewReader(nil), 5}).readAll(5); err == nil {
		t.Error("an attribute that ends early is whole")
	}
}

// Superblocks of containers, volumes and snapshots are read from as many bytes as they have.
func TestParseBlocks(t *testing.T) {
	super := func(change func(b []byte)) []byte {
		b := make([]byte, 1024)
		le.PutUint32(b[32:], containerMagic)
		le.PutUint32(b[36:], 4096)
		le.PutUint32(b[180:], 3)
		le.PutUint64(b[184:], 11)
		le.PutUint64(b[200:], 13)
		le.PutUint64(b[208:], 14)
		change(b)
		return b
	}
	for name, c := range map[string]struct {
		b  []byte
		ok bool
	}{
		"as it is":     {super(func([]byte) {}), true},
		"short":        {super(func([]byte) {})[:1023], false},
		"other magic":  {super(func(b []byte) { b[32]++ }), false},
		"largest":      {super(func(b []byte) { le.PutUint32(b[36:], 65536) }), true},
		"larger":       {super(func(b []byte) { le.PutUint32(b[36:], 131072) }), false},
		"smaller":      {super(func(b []byte) { le.PutUint32(b[36:], 2048) }), false},
		"odd":          {super(func(b []byte) { le.PutUint32(b[36:], 4096+1024) }), false},
		"many volumes": {super(func(b []byte) { le.PutUint32(b[180:], 1<<31-1); clear(b[208:]) }), true},
	} {
		s, ok := parseSuperblock(c.b, 9)
		if ok != c.ok || ok && (!slices.Equal(s.volumeIDs, []uint64{11, 13}) || s.block != 9) {
			t.Errorf("%s: %+v, %v", name, s, ok)
		}
	}
	volume := make([]byte, volumeHeaderSize)
	le.PutUint32(volume[32:], volumeMagic)
	copy(volume[704:], "name\x00rest")
	if v, err := parseVolume(volume); err != nil || v.name != "name" {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := parseVolume(volume[:volumeHeaderSize-1]); !errors.Is(err, ErrDamaged) {
		t.Errorf("a short volume: %v", err)
	}
	volume[32]++
	if _, err := parseVolume(volume); !errors.Is(err, ErrDamaged) {
		t.Errorf("other magic: %v", err)
	}
	snapshot := append(make([]byte, 50), "name\x00rest"...)
	for length, want := range map[byte]string{4: "name", 3: "nam", 200: "name", 0: ""} {
		snapshot[48] = length
		if s, ok := parseSnapshot(snapshot); !ok || s.Name != want {
			t.Errorf("%d bytes: %+v, %v, want %q", length, s, ok, want)
		}
	}
	if _, ok := parseSnapshot(snapshot[:49]); ok {
		t.Error("a short snapshot is taken")
	}
	if _, ok := parseSnapshot(snapshot[:50]); !ok {
		t.Error("a snapshot without a name is not taken")
	}
}

// Nothing outside of the container or the image is read, and all within is.
func TestDevice(t *testing.T) {
	b := make([]byte, 10*4096)
	for i := range b {
		b[i] = byte(i / 4096)
	}
	d := &device{r: bytes.NewReader(b), size: int64(len(b)), blockSize: 4096, blockCount: 12}
	for _, c := range []struct {
		block  uint64
		off    int64
		length int
		ok     bool
	}{
		{0, 0, 4096, true},
		{9, 0, 4096, true},
		{9, 4095, 1, true},
		{9, 4095, 2, false},
		{9, 4096, 0, true},
		{9, 4097, 0, false},
		{10, 0, 1, false},
		{10, 0, 0, false},
		{12, 0, 1, false},
		{3, -1, 1, false},
		{3, 5 * 4096, 4096, true},
		{1 << 62, 0, 1, false},
		{0, math.MaxInt64, 1, false},
	} {
		p := bytes.Repeat([]byte{99}, c.length)
		err := d.read(p, c.block, c.off)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrDamaged) ||
			c.ok && c.length > 0 && p[0] != byte(int64(c.block)+c.off/4096) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	d.blockCount = 5 // the container is smaller than the image
	for block, want := range map[uint64]bool{4: true, 5: false} {
		if err := d.read(make([]byte, 1), block, 0); (err == nil) != want ||
			err != nil && !strings.Contains(err.Error(), "outside of it") {
			t.Errorf("block %d of 5: %v", block, err)
		}
	}
	d.blockCount = math.MaxUint64
	if err := d.read(make([]byte, 1), math.MaxInt64/4096+1, 0); !errors.Is(err, ErrDamaged) {
		t.Errorf("a block behind all numbers: %v", err)
	}
	d.r = bytes.NewReader(b[:4096])
	if err := d.read(make([]byte, 4096), 5, 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that ends early: %v", err)
	}
	d.r = unreadable{}
	if err := d.read(make([]byte, 4096), 5, 0); !errors.Is(err, errUnreadable) {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

var errUnreadable = errors.New("unreadable")

type unreadable struct{}

func (unreadable) ReadAt([]byte, int64) (int, error) { return 0, errUnreadable }

// Checksums are Fletcher's, compared with a sum word by word.
func TestChecksum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, words := range []int{0, 1, 2, 1022, 1024, 1025, 4094} {
		b := make([]byte, 4*words)
		for i := range b {
			b[i] = byte(r.Uint32()) | 0xf0
		}
		var x, y uint64
		for i := range words {
			x = (x + uint64(binary.LittleEndian.Uint32(b[4*i:]))) % math.MaxUint32
			y = (y + x) % math.MaxUint32
		}
		low := math.MaxUint32 - (x+y)%math.MaxUint32
		want := low | (math.MaxUint32-(x+low)%math.MaxUint32)<<32
		if got := checksum(b); got != want {
			t.Errorf("%d words: %x, want %x", words, got, want)
		}
		if sealed := append(le.AppendUint64(nil, want), b...); !checksumValid(sealed) {
			t.Errorf("%d words are not sound", words)
		} else if sealed[0]++; checksumValid(sealed) {
			t.Errorf("%d words with another sum are sound", words)
		}
	}
}

func TestCovering(t *testing.T) {
	list := []extent{{offset: 10, length: 5}, {offset: 15, length: 1}, {offset: 16, length: 4}}
	for off, want := range map[int64]int64{9: -1, 10: 10, 14: 10, 15: 15, 16: 16, 19: 16, 20: -1} {
		if e, ok := extentCovering(list, off); ok != (want >= 0) || ok && e.offset != want {
			t.Errorf("%d: %+v, %v", off, e, ok)
		}
	}
	if _, ok := extentCovering(nil, 0); ok {
		t.Error("nothing covers a place")
	}
}

// The most recently used items are kept, and never more than twice as many.
func TestCache(t *testing.T) {
	c := newGenerationCache[int, int](3)
	for i := range 3 {
		c.add(i, i)
	}
	c.add(3, 3) // begins a generation
	if v, ok := c.get(0); v != 0 || !ok {
		t.Error("the old generation is gone")
	}
	c.add(4, 4)
	c.add(5, 5) // begins another one: 0, 3 and 4 are the old one
	for i, want := range []bool{true, false, false, true, true, true} {
		if _, ok := c.get(i); ok != want {
			t.Errorf("%d is kept: %v", i, ok)
		}
		if len(c.young) > 3 || len(c.old) > 3 {
			t.Errorf("%d and %d are kept", len(c.young), len(c.old))
		}
	}
	if newGenerationCache[int, int](0).maxItems != 1 {
		t.Error("a cache of nothing")
	}
}

// Reading and seeking a file follow the contracts of io.
func TestFile(t *testing.T) {
	f := &file{fileInfo: fileInfo{"name", &inode{size: 5}}, ReaderAt: bytes.NewReader([]byte("value"))}
	p := make([]byte, 3)
	for _, c := range []struct {
		do   func() (int, error)
		n    int
		want error
	}{
		{func() (int, error) { return f.Read(nil) }, 0, nil},
		{func() (int, error) { return f.Read(p) }, 3, nil},
		{func() (int, error) { return f.Read(p) }, 2, nil},
		{func() (int, error) { return f.Read(p) }, 0, io.EOF},
		{func() (int, error) { n, err := f.Seek(-4, io.SeekCurrent); return int(n), err }, 1, nil},
		{func() (int, error) { n, err := f.Seek(-4, io.SeekEnd); return int(n), err }, 1, nil},
		{func() (int, error) { n, err := f.Seek(-1, io.SeekStart); return int(n), err }, 0, errNegativeOffset},
		{func() (int, error) { n, err := f.Seek(0, 3); return int(n), err }, 0, errInvalidWhence},
		{func() (int, error) { n, err := f.Seek(0, io.SeekStart); return int(n), err }, 0, nil},
		{func() (int, error) { return f.Read(p) }, 3, nil},
	} {
		if n, err := c.do(); n != c.n || !errors.Is(err, c.want) {
			t.Errorf("%d, %v, want %d, %v", n, err, c.n, c.want)
		}
	}
	f.ReaderAt = unreadable{}
	if _, err := f.Read(p); !errors.Is(err, errUnreadable) {
		t.Errorf("%v", err)
	}
}

// An open directory returns its entries in parts, and an error after them, once.
func TestDirectory(t *testing.T) {
	entries := []fs.DirEntry{&dirEntry{name: "a"}, &dirEntry{name: "b"}, &dirEntry{name: "c"}}
	open := func(err error) *dirHandle { return &dirHandle{entries: entries, err: err, loaded: true} }
	bad := fmt.Errorf("bad: %w", ErrDamaged)
	for _, c := range []struct {
		err  error
		asks []int
		n    []int
		want []error
	}{
		{nil, []int{-1, -1, 1}, []int{3, 0, 0}, []error{nil, nil, io.EOF}},
		{nil, []int{2, 2, 2}, []int{2, 1, 0}, []error{nil, nil, io.EOF}},
		{nil, []int{3, 0, 3}, []int{3, 0, 0}, []error{nil, nil, io.EOF}},
		{bad, []int{2, 1, 1, 0}, []int{2, 1, 0, 0}, []error{nil, bad, io.EOF, nil}},
		{bad, []int{0, 0, 1}, []int{3, 0, 0}, []error{bad, nil, io.EOF}},
	} {
		d := open(c.err)
		for i, n := range c.asks {
			if list, err := d.ReadDir(n); len(list) != c.n[i] || !errors.Is(err, c.want[i]) ||
				(err == nil) != (c.want[i] == nil) {
				t.Errorf("%v of %v: %d, %v", c.asks[:i+1], c.err, len(list), err)
			}
		}
	}
	if _, err := open(nil).Read(make([]byte, 1)); !errors.Is(err, errIsDir) {
		t.Errorf("%v", err)
	}
}
