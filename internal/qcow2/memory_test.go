package qcow2_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"

	"github.com/buildyard/buildyard/internal/qcow2"
)

// merged merges neighbors of one kind.
func merged(list []qcow2.Range) []qcow2.Range {
	var out []qcow2.Range
	for _, g := range list {
		if n := len(out); n > 0 && out[n-1].Kind == g.Kind && out[n-1].End() == g.Off {
			out[n-1].Len += g.Len
		} else if g.Len > 0 {
			out = append(out, g)
		}
	}
	return out
}

// rangesOf lists the ranges of a layer.
func rangesOf(t testing.TB, l qcow2.Layer) []qcow2.Range {
	t.Helper()
	var out []qcow2.Range
	for off := int64(0); ; {
		r, ok, err := l.NextRange(off)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return out
		}
		out = append(out, r)
		off = r.End()
	}
}

// counts reads the refcount of every cluster of an image, in the documented format.
func counts(b []byte) []uint16 {
	be := binary.BigEndian
	size := int64(1) << be.Uint32(b[20:])
	table := b[be.Uint64(b[48:]):][:int64(be.Uint32(b[56:]))*size]
	var out []uint16
	for ; len(table) > 0 && 1<<be.Uint32(b[96:]) == 16; table = table[8:] {
		at := int64(be.Uint64(table))
		for k := int64(0); at != 0 && k < size && at+k < int64(len(b)); k += 2 {
			out = append(out, be.Uint16(b[at+k:]))
		}
	}
	return out
}

// A written overlay reads back: the ranges, the bytes, and a count of one for each cluster.
func TestOverlayInMemory(t *testing.T) {
	for seed, size := range []int{1, 4096, 700, 1<<20 + 512, 3<<20 + 4096 + 100} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 8))
			c := randomChanges(r, make([]byte, size), 12)
			want := merged(c.ranges)
			want[len(want)-1].Len = int64(size+511)&^511 - want[len(want)-1].Off // whole sectors
			r.Shuffle(len(c.ranges), func(i, j int) { c.ranges[i], c.ranges[j] = c.ranges[j], c.ranges[i] })
			l := c.layout(t)
			var m memory
			if err := l.CopyData(t.Context(), &m, bytes.NewReader(c.want)); err != nil {
				t.Fatal(err)
			}
			if err := l.Finish(&m); err != nil {
				t.Fatal(err)
			}
			checkWritten(t, l, m.b)
			i, err := qcow2.Open(bytes.NewReader(m.b), int64(len(m.b)))
			if err != nil {
				t.Fatal(err)
			}
			if got := rangesOf(t, i); !slices.Equal(merged(got), want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
			same(t, i, append(bytes.Clone(c.want), make([]byte, 512)...)[:i.Size()])
		})
	}
}

func checkWritten(t *testing.T, l *qcow2.Layout, b []byte) {
	t.Helper()
	if int64(len(b)) != l.FileSize() {
		t.Errorf("%d bytes, said %d", len(b), l.FileSize())
	}
	used := len(b) / cluster
	for k, n := range counts(b) {
		if want := k < used; (n == 1) != want || n > 1 {
			t.Fatalf("cluster %d of %d is used %d times", k, used, n)
		}
	}
	if n := len(counts(b)); n < used {
		t.Errorf("%d of %d clusters are counted", n, used)
	}
}

// Tables are far apart on a large disk, and those between them are not written.
func TestTablesApart(t *testing.T) {
	const gib = 1 << 30
	b := qcow2.NewBuilder(5 * gib)
	list := []qcow2.Range{
		{Off: 3*gib + cluster, Len: 8192, Kind: qcow2.Data},
		{Off: gib - 4096, Len: 8192, Kind: qcow2.Zero},
		{Off: 4096, Len: 4096, Kind: qcow2.Data},
		{Off: 3*gib + 5*cluster, Len: 4096, Kind: qcow2.Zero},
	}
	for _, g := range list {
		if err := b.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	l, err := b.Layout()
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(4 + 3 + 2); l.FileSize() != want*cluster { // header, L1, counts; L2 tables; data
		t.Errorf("%d clusters, want %d", l.FileSize()/cluster, want)
	}
	var m memory
	if err := l.CopyData(t.Context(), &m, counting(5*gib)); err != nil {
		t.Fatal(err)
	}
	if err := l.Finish(&m); err != nil {
		t.Fatal(err)
	}
	checkWritten(t, l, m.b)
	i, err := qcow2.Open(bytes.NewReader(m.b), int64(len(m.b)))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b qcow2.Range) int { return int((a.Off - b.Off) / qcow2.SubclusterBytes) })
	got := slices.DeleteFunc(rangesOf(t, i), func(g qcow2.Range) bool { return g.Kind == qcow2.Absent })
	if !slices.Equal(got, list) {
		t.Errorf("got  %v\nwant %v", got, list)
	}
	for _, off := range []int64{4096, 3*gib + cluster} {
		got, want := make([]byte, 4096), make([]byte, 4096)
		_, _ = counting(5*gib).ReadAt(want, off)
		if _, err := i.ReadAt(got, off); err != nil || !bytes.Equal(got, want) {
			t.Errorf("other bytes at %d: %v", off, err)
		}
	}
}

var errFaulty = errors.New("faulty")

// steps is a file that records its operations, and fails at one step.
type steps struct {
	memory
	done []string
	fail int // -1 = never
}

func (s *steps) step(what string) error {
	if s.done = append(s.done, what); len(s.done)-1 == s.fail {
		return errFaulty
	}
	return nil
}

func (s *steps) WriteAt(p []byte, off int64) (int, error) {
	what := "write"
	if off == 0 {
		what = "header"
	}
	if err := s.step(what); err != nil {
		return 0, err
	}
	return s.memory.WriteAt(p, off)
}

func (s *steps) Truncate(n int64) error { return errors.Join(s.step("truncate"), s.memory.Truncate(n)) }
func (s *steps) Sync() error            { return s.step("sync") }

// The header is written after everything else is on the disk, and any failure is returned.
func TestFinishInOrder(t *testing.T) {
	b := qcow2.NewBuilder(3 << 30)
	for _, off := range []int64{0, 2 << 30} {
		if err := b.Add(qcow2.Range{Off: off, Len: 4096, Kind: qcow2.Zero}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := b.Layout()
	if err != nil {
		t.Fatal(err)
	}
	good := &steps{fail: -1}
	if err := l.Finish(good); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(good.done, " "); got != "truncate write write write write write sync header sync" {
		t.Errorf("it was written in this order: %s", got)
	}
	for k := range good.done {
		f := &steps{fail: k}
		if err := l.Finish(f); !errors.Is(err, errFaulty) || len(f.done) != k+1 {
			t.Errorf("step %d (%s): %v, after %v", k, good.done[k], err, f.done)
		}
	}
}

// A copy stops where the disk cannot be read or the file cannot be written.
func TestFillFails(t *testing.T) {
	c := randomChanges(rand.New(rand.NewPCG(1, 1)), bytes.Repeat([]byte{1}, 300<<10), 0)
	c.ranges = []qcow2.Range{{Len: 300 << 10, Kind: qcow2.Data}}
	l := c.layout(t)
	if err := l.CopyData(t.Context(), &memory{}, faulty{bytes.NewReader(c.want), 200 << 10}); !errors.Is(err,
		errFaulty) {
		t.Errorf("a disk that cannot be read: %v", err)
	}
	for k := range 3 { // clusters
		if err := l.CopyData(t.Context(), &steps{fail: k}, bytes.NewReader(c.want)); !errors.Is(err, errFaulty) {
			t.Errorf("a file that cannot be written: %v", err)
		}
	}
	var m memory // a disk that became shorter: the part after its end is zero, not what was read before
	if err := l.CopyData(t.Context(), &m, bytes.NewReader(c.want[:cluster+100])); err != nil {
		t.Fatal(err)
	}
	at, n := l.FileOffset(cluster)
	if got := m.b[at:][:n]; bytes.Count(got, []byte{0}) != len(got)-100 {
		t.Error("behind the end of the disk there are bytes of another part")
	}
}

// faulty is a reader that fails where it would read a byte.
type faulty struct {
	io.ReaderAt
	at int64
}

func (f faulty) ReadAt(p []byte, off int64) (int, error) {
	if off <= f.at && f.at < off+int64(len(p)) {
		return 0, errFaulty
	}
	return f.ReaderAt.ReadAt(p, off)
}

// small returns an image with clusters of 512 bytes: an L1 table in cluster 1, an L2 table in
// cluster 2, and a disk of 8 clusters.
func small(version uint64, size int, entries ...uint64) []byte {
	words := map[int64]uint64{0: magic | version, 20: 9 << 32, 24: 8 * 512, 36: 1 << 32, 40: 512, 512: 1024}
	if version == 3 {
		words[100] = 104 << 32
	}
	for k, e := range entries {
		words[1024+8*int64(k)] = e
	}
	return image(size, words)
}

const (
	magic  = 0x514649fb << 32
	packed = 1 << 62
)

// Entries of 8 bytes have the documented meaning, in both versions.
func TestEntries(t *testing.T) {
	random := make([]byte, 512)
	for i, r := 0, rand.New(rand.NewPCG(4, 4)); i < len(random); i++ {
		random[i] = byte(r.Uint32())
	}
	var deflated bytes.Buffer
	w, err := flate.NewWriter(&deflated, 9)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(random)
	_ = w.Close()
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	zstded := encoder.EncodeAll(random, nil)
	const place = 2048 + 100 // of the compressed cluster, whose end is in the next sector
	for name, c := range map[string]struct {
		version uint64
		stream  []byte
		flag    qcow2.Kind // of an entry with its lowest bit set
	}{
		"version 2": {2, deflated.Bytes(), qcow2.Data}, "version 3": {3, deflated.Bytes(), qcow2.Zero},
		"zstd": {3, zstded, qcow2.Zero},
	} {
		b := small(c.version, place+len(c.stream), 0, 1<<63|1536, packed|1<<61|place, 1536|1, 0, 1536)
		if name == "zstd" {
			binary.BigEndian.PutUint64(b[72:], 1<<3)
			binary.BigEndian.PutUint32(b[100:], 112)
			b[104] = 1
		}
		plain := bytes.Repeat([]byte{5}, 512)
		copy(b[1536:], plain)
		copy(b[place:], c.stream)
		i, err := qcow2.Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		want := []qcow2.Range{
			{Off: 0, Len: 512},
			{Off: 512, Len: 1024, Kind: qcow2.Data},
			{Off: 1536, Len: 512, Kind: c.flag},
			{Off: 2048, Len: 512},
			{Off: 2560, Len: 512, Kind: qcow2.Data},
			{Off: 3072, Len: 1024},
		}
		if got := rangesOf(t, i); !slices.Equal(got, merged(want)) {
			t.Errorf("%s: got  %v\nwant %v", name, got, want)
		}
		disk := make([]byte, 4096)
		copy(disk[512:], plain)
		copy(disk[1024:], random)
		copy(disk[2560:], plain)
		if c.flag == qcow2.Data {
			copy(disk[1536:], plain)
		}
		same(t, i, disk)
		checkReads(t, i)
		checkFaults(t, b)
	}
}

// checkReads reads outside of a disk.
func checkReads(t *testing.T, l qcow2.Layer) {
	t.Helper()
	p := bytes.Repeat([]byte{1}, 100)
	if _, err := l.ReadAt(p, -1); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a read before the disk: %v", err)
	}
	if n, err := l.ReadAt(p, l.Size()-10); n != 10 || !errors.Is(err, io.EOF) {
		t.Errorf("a read at the end: %d, %v", n, err)
	}
	if n, err := l.ReadAt(p[:10], l.Size()-10); n != 10 || err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("a read up to the end: %d, %v", n, err)
	}
	for _, off := range []int64{-1, l.Size()} {
		if r, ok, err := l.NextRange(off); ok || err != nil {
			t.Errorf("the range at %d: %+v, %v", off, r, err)
		}
	}
}

// checkFaults makes each used sector of a small image fail: its reader gets an error.
func checkFaults(t *testing.T, b []byte) {
	t.Helper()
	for _, at := range []int64{0, 512, 1024, 1536, 2200} {
		i, err := qcow2.Open(faulty{bytes.NewReader(b), at}, int64(len(b)))
		if err == nil {
			_, err = io.Copy(io.Discard, io.NewSectionReader(i, 0, i.Size()))
		}
		if !errors.Is(err, errFaulty) {
			t.Errorf("byte %d cannot be read: %v", at, err)
		}
		if at > 0 {
			continue
		}
		if _, err := qcow2.DiskSize(faulty{bytes.NewReader(b), at}); !errors.Is(err, errFaulty) {
			t.Errorf("the header cannot be read: %v", err)
		}
		if _, err := qcow2.OpenOverlay(faulty{bytes.NewReader(b), at}, int64(len(b)), 0); !errors.Is(err, errFaulty) {
			t.Errorf("the header cannot be read: %v", err)
		}
		if _, err := qcow2.ReadBackingInfo(faulty{bytes.NewReader(b), at}); !errors.Is(err, errFaulty) {
			t.Errorf("the header cannot be read: %v", err)
		}
	}
	i, err := qcow2.Open(faulty{bytes.NewReader(b), 1024}, int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []qcow2.Layer{i, qcow2.Stack(i)} {
		if _, _, err := l.NextRange(0); !errors.Is(err, errFaulty) {
			t.Errorf("the L2 table cannot be read: %v", err)
		}
		if _, _, err := qcow2.NextData(l, 0); !errors.Is(err, errFaulty) {
			t.Errorf("the L2 table cannot be read: %v", err)
		}
	}
}

// The last cluster of a file may be incomplete; the missing part is zero.
func TestShortFile(t *testing.T) {
	b := append(small(2, 1536, 1536), 1, 2, 3)
	i, err := qcow2.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	p := bytes.Repeat([]byte{9}, 512)
	if _, err := i.ReadAt(p, 0); err != nil || !bytes.Equal(p, append([]byte{1, 2, 3}, make([]byte, 509)...)) {
		t.Errorf("%v, %v", p[:8], err)
	}
	for entry, want := range map[uint64]string{1536: "data is at 1536", packed |
		1536: "compressed cluster is at 1536"} {
		i, err := qcow2.Open(bytes.NewReader(small(2, 1536, entry)), 1536)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := i.ReadAt(p, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an entry of %#x in a file that ends there: %v", entry, err)
		}
	}
}

// The tables of an image are within its file, up to its last byte, and each occurs once.
func TestTablesInFile(t *testing.T) {
	l1 := func(entries ...uint64) map[int64]uint64 { // of 3 tables, each of 32 KiB of the disk
		words := map[int64]uint64{0: magic | 2, 20: 9 << 32, 24: 96 << 10, 36: 3 << 32, 40: 512}
		for k, e := range entries {
			words[512+8*int64(k)] = e
		}
		return words
	}
	for name, c := range map[string]struct {
		words map[int64]uint64
		file  int
		want  string // "" = it opens
	}{
		"L1 up to the end":   {l1(), 512 + 24, ""},
		"L1 over the end":    {l1(), 512 + 23, "L1 table is at 512"},
		"L2 up to the end":   {l1(1024, 0, 1536), 2048, ""},
		"L2 over the end":    {l1(1024, 0, 1536), 2047, "L2 table is at 1536, and the file has "},
		"one table, apart":   {l1(1024, 1536, 1024), 2048, "the same L2 table"},
		"none of the tables": {l1(), 4096, ""},
	} {
		_, err := qcow2.Open(bytes.NewReader(image(c.file, c.words)), int64(c.file))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	const most = 4 << 20 // entries
	for entries, want := range map[uint64]string{most: "", most + 1: "L1 table has 4194305 entries"} {
		head := image(512, map[int64]uint64{0: magic | 2, 20: 9 << 32, 36: entries << 32, 40: 512})
		binary.BigEndian.PutUint64(head[24:], entries*(32<<10))
		_, err := qcow2.OpenOverlay(holes(head), 1<<30, 0)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d entries: %v, want %q", entries, err, want)
		}
	}
}

// holes is a large file that begins with some bytes.
type holes []byte

func (h holes) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(h)) {
		copy(p, h[off:])
	}
	return len(p), nil
}

// A header is read from the bytes that its version has, up to the limits of the format.
func TestHeaders(t *testing.T) {
	head := func(version uint64, change func(b []byte)) []byte {
		b := small(version, 2048)[:112]
		change(b)
		return b
	}
	be := binary.BigEndian
	none := func([]byte) {}
	for name, c := range map[string]struct {
		b    []byte
		want string // "" = the disk has 4096 bytes
	}{
		"version 2":         {head(2, none)[:72], ""},
		"version 2, cut":    {head(2, none)[:71], "not a qcow2 version 2 or 3 image"},
		"version 3":         {head(3, none)[:104], ""},
		"version 3, cut":    {head(3, none)[:103], "too short"},
		"too short":         {head(3, func(b []byte) { be.PutUint32(b[100:], 103) }), "too short"},
		"largest clusters":  {head(3, func(b []byte) { be.PutUint32(b[20:], 21) }), ""},
		"larger clusters":   {head(3, func(b []byte) { be.PutUint32(b[20:], 22) }), "2^22 bytes"},
		"smaller clusters":  {head(3, func(b []byte) { be.PutUint32(b[20:], 8) }), "2^8 bytes"},
		"zstd":              {head(3, func(b []byte) { b[79], b[103], b[104] = 8, 112, 1 }), ""},
		"other compression": {head(3, func(b []byte) { b[79], b[103], b[104] = 8, 112, 2 }), "compression type (2)"},
		"overlay":           {head(3, func(b []byte) { b[15] = 200 }), "overlay on another image"},
	} {
		size, err := qcow2.DiskSize(bytes.NewReader(c.b))
		if c.want == "" && (err != nil || size != 4096) ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || size != 0) {
			t.Errorf("%s: %d bytes, %v, want %q", name, size, err, c.want)
		}
	}
}

// backed returns a header of an image with a backing file: extensions, then its name.
func backed(name string, extensions ...[]byte) []byte {
	b := small(3, 2048)[:112]
	binary.BigEndian.PutUint32(b[100:], 112)
	for _, e := range extensions {
		b = append(b, e...)
	}
	binary.BigEndian.PutUint64(b[8:], uint64(len(b)))
	binary.BigEndian.PutUint32(b[16:], uint32(len(name)))
	return append(b, name...)
}

func extension(kind uint32, text string) []byte {
	b := binary.BigEndian.AppendUint32(nil, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(append(b, text...), make([]byte, (8-len(text)%8)%8)...)
}

// The name of an image's backing file is returned unchanged, or refused.
func TestNames(t *testing.T) {
	const format = 0xe2792aca
	change := func(b []byte, by func(b []byte)) []byte {
		by(b)
		return b
	}
	long := strings.Repeat("n", 1023)
	wide := func(b []byte) { binary.BigEndian.PutUint32(b[20:], 16) } // clusters large enough for it
	be := binary.BigEndian
	for title, c := range map[string]struct {
		b            []byte
		name, format string
		want         string // in the error; "" = none
	}{
		"alone":    {small(3, 2048), "", "", ""},
		"a name":   {backed("base"), "base", "", ""},
		"a format": {backed("base", extension(format, "raw")), "base", "raw", ""},
		"behind others": {backed("base", extension(7, "12345"), extension(8, "12345678"), extension(9, ""),
			extension(format, "qcow2")), "base", "qcow2", ""},
		"behind the end": {backed("base", extension(0, ""), extension(format, "raw")), "base", "", ""},
		"a long name":    {change(backed(long), wide), long, "", ""},
		"a longer name":  {change(backed(long+"n"), wide), "", "", "has 1024 bytes"},
		"no name":        {change(backed("base"), func(b []byte) { be.PutUint32(b[16:], 0) }), "", "", "has 0 bytes"},
		"the first end":  {backed(strings.Repeat("n", 400)), strings.Repeat("n", 400), "", ""},
		"over the first": {backed(strings.Repeat("n", 401)), "", "", "has 401 bytes"},
		"no text":        {backed("\xff\xfe"), "", "", "is not text"},
		"cut":            {backed("base")[:114], "", "", "ends within its header"},
		"a long format": {backed("base", extension(format, strings.Repeat("f", 32))), "base", strings.Repeat("f",
			32), ""},
		"a longer format": {backed("base", extension(format, strings.Repeat("f", 33))), "", "", "a name of 33 bytes"},
		"many extensions": {change(backed("base", slices.Repeat([][]byte{{0, 0, 0, 9, 0, 0, 0, 0}}, 65)...),
			wide), "", "", "more than 64 extensions"},
		"64 extensions": {change(backed("b", append(slices.Repeat([][]byte{{0, 0, 0, 9, 0, 0, 0, 0}}, 63),
			extension(format, "raw"))...), wide), "b", "raw", ""},
	} {
		n, err := qcow2.ReadBackingInfo(bytes.NewReader(c.b))
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %+v, %v, want %q", title, n, err, c.want)
			}
			continue
		}
		if err != nil || n.BackingName != c.name || n.BackingFormat != c.format || n.DiskSize != 4096 ||
			n.MemoryBytes <= 0 {
			t.Errorf("%s: %+v, %v", title, n, err)
		}
	}
	b := backed("base", extension(format, "raw"))
	b = append(b, make([]byte, 200)...)
	for at := int64(112); at < int64(len(b))-200; at++ {
		// which is padding
		if _, err := qcow2.ReadBackingInfo(exactly{b, at}); !errors.Is(err, errFaulty) && !(at >= 123 && at < 128) {
			t.Errorf("byte %d cannot be read: %v", at, err)
		}
	}
}

// exactly is a file with one unreadable byte after the header.
type exactly struct {
	b  []byte
	at int64
}

func (e exactly) ReadAt(p []byte, off int64) (int, error) {
	if off > 0 && off <= e.at && e.at < off+int64(len(p)) {
		return 0, fmt.Errorf("at %d: %w", e.at, errFaulty)
	}
	return bytes.NewReader(e.b).ReadAt(p, off)
}

// tally counts the reads of a file.
type tally struct {
	b  []byte
	at []int64
}

func (r *tally) ReadAt(p []byte, off int64) (int, error) {
	r.at = append(r.at, off)
	return bytes.NewReader(r.b).ReadAt(p, off)
}

// The most recently used tables are cached up to the caller's limit of memory.
func TestCache(t *testing.T) {
	words := map[int64]uint64{0: magic | 2, 20: 9 << 32, 24: 96 << 10, 36: 3 <<
		32, 40: 512, 512: 1024, 520: 1536, 528: 2048}
	r := &tally{b: image(2560, words)}
	i, err := qcow2.OpenOverlay(r, int64(len(r.b)), 2*512)
	if err != nil {
		t.Fatal(err)
	}
	r.at = nil
	for _, table := range []int64{0, 0, 1, 0, 2, 0, 1, 1, 2, 1, 0} {
		if _, err := i.ReadAt(make([]byte, 1), table*(32<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int64{1024, 1536, 2048, 1536, 2048, 1024}; !slices.Equal(r.at, want) {
		t.Errorf("read at %v, want %v", r.at, want)
	}
}
