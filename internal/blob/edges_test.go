package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// checkError fails unless an error contains a text; "" means no error.
func checkError(t *testing.T, name string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

// Options that no index can represent are refused before anything is read, up to the limits.
func TestOptions(t *testing.T) {
	some := Digest{1}
	for name, c := range map[string]struct {
		o    EncodeOptions
		want string
	}{
		"empty":             {EncodeOptions{}, ""},
		"largest":           {EncodeOptions{Size: MaxContentSize}, ""},
		"larger":            {EncodeOptions{Size: MaxContentSize + 1}, "out of range"},
		"below zero":        {EncodeOptions{Size: -1}, "out of range"},
		"a disk on another": {EncodeOptions{Kind: KindDisk, Parent: some}, ""},
		"a disk for a tip":  {EncodeOptions{Kind: KindDisk, Squashes: some}, ""},
		"a file on another": {EncodeOptions{Kind: KindFile, Parent: some}, "only a disk layer"},
		"a state for a tip": {EncodeOptions{Kind: KindState, Squashes: some}, "only a disk layer"},
		"both":              {EncodeOptions{Kind: KindDisk, Parent: some, Squashes: some}, "cannot replace a chain"},
	} {
		checkError(t, name, c.o.validate(), c.want)
		_, err := NewBuilder(c.o).Index()
		checkError(t, name, err, c.want)
	}
	b := NewBuilder(EncodeOptions{})
	b.encodedFrames = make([]byte, MaxIndexSize)
	_, err := b.Index()
	checkError(t, "an index that is too large", err, "more frames than fit")
	_, err = ParseIndex(make([]byte, MaxIndexSize+1))
	checkError(t, "an index that is too large", err, "index of 67108865 bytes")
}

// Names of layers are 64 lower-case digits, and nothing else.
func TestParseRoot(t *testing.T) {
	for c, want := range map[byte]bool{
		'/': false, '0': true, '9': true, ':': false, '`': false, 'a': true, 'f': true,
		'g': false, 'A': false, 'F': false, 0: false,
	} {
		for _, s := range []string{string(c) + strings.Repeat("0", 63), strings.Repeat("0", 63) + string(c)} {
			r, err := ParseDigest(s)
			if (err == nil) != want || want && r.String() != s || !want && !r.IsZero() {
				t.Errorf("%q: %v, %v", s, r, err)
			}
		}
	}
	for _, n := range []int{0, 62, 63, 65, 66} {
		if _, err := ParseDigest(strings.Repeat("1", n)); err == nil {
			t.Errorf("%d digits are taken", n)
		}
	}
}

// A footer points to an index that fills the file up to it.
func TestFooterLimits(t *testing.T) {
	for name, c := range map[string]struct {
		offset, length, size int64
		ok                   bool
	}{
		"at the begin": {0, 10, 10 + FooterSize, true},
		"behind data":  {7, 10, 17 + FooterSize, true},
		"largest":      {7, MaxIndexSize, 7 + MaxIndexSize + FooterSize, true},
		"larger":       {7, MaxIndexSize + 1, 8 + MaxIndexSize + FooterSize, false},
		"empty":        {7, 0, 7 + FooterSize, false},
		"shorter":      {7, 9, 17 + FooterSize, false},
		"longer":       {7, 11, 17 + FooterSize, false},
		"behind":       {18, -1, 17 + FooterSize, false},
		"below zero":   {-1, 18, 17 + FooterSize, false},
		"no room":      {0, 10, FooterSize - 1, false},
	} {
		b := Footer{IndexOffset: c.offset, IndexLength: c.length, Digest: Digest{3}}.appendTo(nil)
		f, err := ParseFooter(b, c.size)
		if (err == nil) != c.ok ||
			c.ok && (f.IndexOffset != c.offset || f.IndexLength != c.length || f.Digest != Digest{3}) ||
			err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
	b := Footer{IndexLength: 10}.appendTo(nil)
	if _, err := ParseFooter(b[1:], 10+FooterSize); err == nil {
		t.Error("a part of a footer is taken")
	}
	for at := range b {
		changed := bytes.Clone(b)
		changed[at] ^= 1
		if _, err := ParseFooter(changed, 10+FooterSize); !errors.Is(err, ErrCorrupt) {
			t.Errorf("byte %d changed: %v", at, err)
		}
	}
}

// failing is a reader that fails at or behind an offset.
type failing struct {
	io.ReaderAt
	at int64
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off >= f.at {
		return 0, errTest
	}
	return f.ReaderAt.ReadAt(p, off)
}

// lazy is a reader that returns less than requested, and no error.
type lazy struct{}

func (lazy) ReadAt(p []byte, _ int64) (int, error) { return len(p) - 1, nil }

// A layer opens when footer and index belong to one layer, the requested one.
func TestOpenLayerRefuses(t *testing.T) {
	file, x := encode(t, KindFile, bytes.Repeat([]byte("abc"), 5000), 1)
	other, y := encode(t, KindFile, bytes.Repeat([]byte("abd"), 5000), 1)
	size := int64(len(file))
	index := x.Footer().IndexOffset
	footer := func(f Footer, tail []byte) []byte { return f.appendTo(bytes.Clone(tail)) }
	moved := append([]byte("x"), file[:size-FooterSize]...)
	wrong := x.Footer()
	wrong.Digest = y.Digest()
	late := x.Footer()
	late.IndexOffset++
	for name, c := range map[string]struct {
		src  io.ReaderAt
		size int64
		want Digest
		told string
	}{
		"any":     {bytes.NewReader(file), size, Digest{}, ""},
		"the one": {bytes.NewReader(file), size, x.Digest(), ""},
		"another": {bytes.NewReader(file), size, y.Digest(), "not that of the layer"},
		"root of another": {
			bytes.NewReader(footer(wrong, file[:size-FooterSize])), size,
			Digest{},
			"not that of the layer",
		},
		"bytes before it": {bytes.NewReader(footer(late, moved)), size + 1, Digest{}, "not that of the layer"},
		"a small file":    {bytes.NewReader(file), FooterSize - 1, Digest{}, "is not a layer file"},
		"a footer alone": {
			bytes.NewReader(file[size-FooterSize:]), FooterSize,
			Digest{},
			"outside of the file",
		},
		"footer cannot be read": {
			failing{bytes.NewReader(file), size - FooterSize},
			size,
			Digest{},
			"read footer: test",
		},
		"index cannot be read": {
			onlyAt{bytes.NewReader(file), size - FooterSize},
			size,
			Digest{},
			"read index: test",
		},
		"a file that is shorter": {bytes.NewReader(file[:size-1]), size, Digest{}, "file ends at"},
		"less without an error":  {lazy{}, size, Digest{}, "file ends at"},
		"the index of another": {bytes.NewReader(append(bytes.Clone(other[:len(other)-FooterSize]),
			file[size-FooterSize:]...)), size, Digest{}, "not that of the layer"},
		"an index without a form": {
			bytes.NewReader(footer(x.Footer(), make([]byte, size-FooterSize))), size,
			Digest{},
			"malformed",
		},
	} {
		_, err := OpenLayer(c.src, c.size, c.want)
		checkError(t, name, err, c.told)
	}
	l, err := OpenLayer(bytes.NewReader(file), size, Digest{})
	if err != nil {
		t.Fatal(err)
	}
	l.src = failing{l.src, 0}
	if err := l.Verify(t.Context()); !errors.Is(err, errTest) {
		t.Errorf("frames that cannot be read: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.src = bytes.NewReader(file)
	if err := l.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a check that was given up: %v", err)
	}
	if index == 0 {
		t.Error("the layer has no frames")
	}
}

// onlyAt is a reader of one offset.
type onlyAt struct {
	io.ReaderAt
	at int64
}

func (o onlyAt) ReadAt(p []byte, off int64) (int, error) {
	if off != o.at {
		return 0, errTest
	}
	return o.ReaderAt.ReadAt(p, off)
}

// A frame matches its hash, length and codec, or is damaged.
func TestUnpack(t *testing.T) {
	raw := bytes.Repeat([]byte("compressible "), 1000)
	stored, f, err := encodeFrame(raw, make([]byte, 0, MaxFrameSize), nil, true)
	if err != nil || f.Codec != CodecZstdSummed || f.RawSize != len(raw) {
		t.Fatalf("%+v, %v", f, err)
	}
	stored = bytes.Clone(stored)
	if got, err := DecodeFrame(f, stored, nil); err != nil || !bytes.Equal(got, raw) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for name, change := range map[string]func(f *Frame){
		"stored": func(f *Frame) { f.StoredSize-- }, "sum": func(f *Frame) { f.Sum[0]++ },
		"shorter": func(f *Frame) { f.RawSize-- },
		"longer":  func(f *Frame) { f.RawSize++ }, "much shorter": func(f *Frame) { f.RawSize = 1 },
	} {
		g := f
		change(&g)
		if _, err := DecodeFrame(g, stored, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	garbage := []byte("garbage that is no frame of zstd")
	g := Frame{StoredSize: len(garbage), RawSize: 100, Codec: CodecZstd, Sum: sha256.Sum256(garbage)}
	if _, err := DecodeFrame(g, garbage, nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("garbage: %v", err)
	}
	g.Codec = CodecRaw
	if got, err := DecodeFrame(g, garbage, nil); err != nil || !bytes.Equal(got, garbage) {
		t.Errorf("stored as it is: %q, %v", got, err)
	}
	for saved, want := range map[int]Codec{10: CodecZstdSummed, 1: CodecRaw} { // per cent, roughly
		p := make([]byte, 100_000)
		x := sha256.Sum256(nil)
		for k := 0; k < len(p)*(100-saved)/100; k += len(x) {
			x = sha256.Sum256(x[:])
			copy(p[k:], x[:])
		}
		if _, f, err := encodeFrame(p, nil, nil, true); err != nil || f.Codec != want {
			t.Errorf("%d %% saved: %v, %v", saved, f.Codec, err)
		}
	}
}

// Parts are accepted up to their limits; an error in one is returned before its bytes are.
func TestPartLimits(t *testing.T) {
	header := func(count int, stored ...int) []byte {
		var frames []PartFrame
		for i := range count {
			frames = append(frames, PartFrame{StoredSize: stored[i%len(stored)]})
		}
		return PartHeader(frames)
	}
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"one frame":        {header(1, 5), ""},
		"most frames":      {header(MaxPartFrames, 1), ""},
		"more frames":      {header(MaxPartFrames+1, 1), "no valid header"},
		"no frames":        {header(0), "no valid header"},
		"another magic":    {append([]byte("x"), header(1, 5)[1:]...), "no valid header"},
		"largest frame":    {header(1, MaxFrameSize), ""},
		"larger frame":     {header(1, MaxFrameSize+1), "a frame of 1048577 bytes"},
		"empty frame":      {header(2, 5, 0), "a frame of 0 bytes"},
		"longest part":     {header(32, MaxFrameSize), ""},
		"longer part":      {header(33, append(make32(), 1)...), "part of 33554433 bytes"},
		"header cut":       {header(1, 5)[:partHeaderSize-1], "unexpected EOF"},
		"table cut":        {header(2, 5)[:partHeaderSize+partEntrySize], "unexpected EOF"},
		"nothing at all":   {nil, "EOF"},
		"bytes are unread": {header(1, 5), ""},
	} {
		p, err := NewPartReader(bytes.NewReader(c.b))
		checkError(t, name, err, c.want)
		if err == nil {
			_, err = p.Read(make([]byte, 10))
			checkError(t, name, err, "read part: ")
		}
	}
	body := []byte("some bytes of a frame, and those of another one")
	frames := []PartFrame{{20, sha256.Sum256(body[:20])}, {len(body) - 20, sha256.Sum256(body[20:])}}
	open := func() *PartReader {
		p, err := NewPartReader(io.MultiReader(bytes.NewReader(PartHeader(frames)), bytes.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if err := iotest.TestReader(struct{ io.Reader }{open()}, body); err != nil {
		t.Error(err)
	}
	p := open()
	if p.DataBytes() != int64(len(body)) || len(p.Frames()) != 2 || p.Frames()[1] != frames[1] {
		t.Errorf("%d bytes, %d frames", p.DataBytes(), len(p.Frames()))
	}
	if _, err := p.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	var rest bytes.Buffer
	if n, err := p.WriteTo(&rest); err != nil || n != int64(len(body)-3) || rest.String() != string(body[3:]) {
		t.Errorf("%d, %v, %q", n, err, rest.String())
	}
	if n, err := open().WriteTo(narrow{}); n != 7 || !errors.Is(err, errTest) {
		t.Errorf("a writer that fails: %d, %v", n, err)
	}
	if PartSum(frames) == PartSum(frames[:1]) || PartSum(frames) == PartSum([]PartFrame{frames[1], frames[0]}) {
		t.Error("other frames have the same name")
	}
}

func make32() []int {
	out := make([]int, 32)
	for i := range out {
		out[i] = MaxFrameSize
	}
	return out
}

// narrow is a writer that accepts seven bytes.
type narrow struct{}

func (narrow) Write([]byte) (int, error) { return 7, errTest }

// asking is a source of one change.
type asking struct {
	io.ReaderAt
	c  Change
	ok bool
}

func (a asking) NextChange(int64) (Change, bool, error) { return a.c, a.ok, nil }

// A change is in blocks of the disk and behind the one before it.
func TestTakeChange(t *testing.T) {
	const size = 10*BlockSize + 5
	for name, c := range map[string]struct {
		off  int64
		c    Change
		want Change // zero: it is refused
	}{
		"a block":        {0, Change{BlockSize, BlockSize, ChangeZero}, Change{BlockSize, BlockSize, ChangeZero}},
		"discarded":      {0, Change{0, BlockSize, ChangeDiscard}, Change{0, BlockSize, ChangeDiscard}},
		"of no kind":     {0, Change{0, BlockSize, ChangeDiscard + 1}, Change{}},
		"the end":        {0, Change{10 * BlockSize, 5, ChangeData}, Change{10 * BlockSize, 5, ChangeData}},
		"over the end":   {0, Change{10 * BlockSize, 6, ChangeData}, Change{}},
		"not to the end": {0, Change{10 * BlockSize, 4, ChangeData}, Change{}},
		"empty":          {0, Change{BlockSize, 0, ChangeData}, Change{}},
		"below zero":     {0, Change{2 * BlockSize, -BlockSize, ChangeData}, Change{}},
		"before zero":    {0, Change{-BlockSize, 2 * BlockSize, ChangeData}, Change{}},
		"done before":    {2 * BlockSize, Change{BlockSize, BlockSize, ChangeData}, Change{}},
		"begun before": {
			2 * BlockSize,
			Change{BlockSize, 2 * BlockSize, ChangeData},
			Change{2 * BlockSize, BlockSize, ChangeData},
		},
		"in a block": {0, Change{1, BlockSize - 1, ChangeData}, Change{}},
	} {
		f := &deltaSource{changes: asking{c: c.c, ok: true}, diskSize: size, endOff: c.off}
		more, err := f.nextChange()
		if (err == nil) != (c.want != Change{}) ||
			err == nil && (!more || f.remaining != c.want || f.endOff != c.want.Off+c.want.Len) {
			t.Errorf("%s: %+v, %v, %v", name, f.remaining, more, err)
		}
	}
	f := &deltaSource{changes: asking{}, diskSize: size}
	if more, err := f.nextChange(); more || err != nil {
		t.Errorf("no change: %v, %v", more, err)
	}
}

// Data of a disk is read; its holes are not read, and are zero.
func TestReadSides(t *testing.T) {
	p := []byte("old")
	if err := readIfPresent(0, p, func() error { return errTest }); err != nil || string(p) != "\x00\x00\x00" {
		t.Errorf("a hole: %q, %v", p, err)
	}
	if err := readIfPresent(inDisk, p, func() error { return errTest }); !errors.Is(err, errTest) {
		t.Errorf("data: %v", err)
	}
	parent := strings.NewReader("parent")
	p = []byte("12345678")
	if err := readParent(parent, p, 2); err != nil || string(p) != "rent\x00\x00\x00\x00" {
		t.Errorf("the end of a parent: %q, %v", p, err)
	}
	checkError(t, "a parent", readParent(failing{parent, 0}, p, 2), "read parent at 2: test")
	checkError(t, "a disk", readDisk(failing{parent, 0}, p, 2), "read at 2: test")
	checkError(t, "a disk that ends", readDisk(parent, p, 2), "read at 6: unexpected EOF")
	checkError(t, "a disk that gives less", readDisk(lazy{}, p, 2), "read at 9: unexpected EOF")
	checkError(t, "a disk", readDisk(parent, p[:4], 2), "")
}

// A batch is full when it has no space left for bytes or for parts.
func TestSpanIsFull(t *testing.T) {
	s := newRangeBatch()
	if end := s.add(Change{Off: 0, Len: batchBytes - BlockSize}, 0); end != batchBytes-BlockSize || s.full() {
		t.Errorf("it has room for %d", s.freeBytes())
	}
	if end := s.add(Change{Off: batchBytes, Len: 2 * BlockSize}, 0); end != batchBytes+BlockSize || !s.full() {
		t.Errorf("it has room for %d", s.freeBytes())
	}
	s.reset()
	for k := range maxBatchRanges {
		if s.full() {
			t.Fatalf("full with %d parts", k)
		}
		s.add(Change{Off: int64(k) * BlockSize, Len: BlockSize, Kind: ChangeZero}, 0)
	}
	if !s.full() || s.freeBytes() != batchBytes {
		t.Error("not full with all parts")
	}
}

// indexOf makes an index of data runs, of which each is a separate frame, and zero runs.
func indexOf(t *testing.T, o EncodeOptions, runs []Run, zeros ...ZeroRun) *Index {
	t.Helper()
	b := NewBuilder(o)
	for _, r := range runs {
		for r.Len > 0 {
			part := Run{r.Off, min(r.Len, MaxFrameSize)}
			b.Add(Frame{StoredSize: 10, Codec: CodecZstd}, []Run{part})
			r.Off, r.Len = r.Off+part.Len, r.Len-part.Len
		}
	}
	for _, z := range zeros {
		b.zeroRuns.add(z)
	}
	x, err := b.Index()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// The next data of a chain has small gaps in it, no large ones, and ends somewhere.
func TestNextDataOfChain(t *testing.T) {
	const mib = 1 << 20
	o := EncodeOptions{Kind: KindDisk, Size: 200 * mib}
	x := indexOf(t, o, []Run{
		{mib, BlockSize},
		{mib + BlockSize + maxGapAsData, BlockSize},
		{mib + 2*BlockSize + 2*maxGapAsData + BlockSize, BlockSize},
		{10 * mib, 150 * mib},
	})
	c, err := OpenChain(&Layer{index: x})
	if err != nil {
		t.Fatal(err)
	}
	third := int64(mib + 2*BlockSize + 2*maxGapAsData + BlockSize)
	for _, q := range []struct{ off, start, end int64 }{
		{0, mib, mib + 2*BlockSize + maxGapAsData},
		{-5, mib, mib + 2*BlockSize + maxGapAsData},
		{mib + 100, mib + 100, mib + 2*BlockSize + maxGapAsData},
		{mib + BlockSize, mib + BlockSize + maxGapAsData, mib + 2*BlockSize + maxGapAsData},
		{mib + 2*BlockSize + maxGapAsData, third, third + BlockSize},
		{9 * mib, 10 * mib, 10*mib + maxDataRange},
		{100*mib + 1, 100*mib + 1, 160 * mib},
		{160 * mib, 200 * mib, 200 * mib},
		{200 * mib, 200 * mib, 200 * mib},
	} {
		start, end, err := c.NextData(q.off)
		if long := q.end - q.start; err != nil || start != q.start ||
			end != q.end && !(long == maxDataRange && end >= q.end && end <= q.end+mib) {
			t.Errorf("from %d: %d to %d, %v, want %d to %d", q.off, start, end, err, q.start, q.end)
		}
	}
	for off, want := range map[int64]error{-1: nil, 200 * mib: io.EOF, 201 * mib: io.EOF} {
		if n, err := c.ReadAt(make([]byte, 1), off); n != 0 || err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("read at %d: %d, %v", off, n, err)
		}
	}
	p := bytes.Repeat([]byte{1}, 10)
	if n, err := c.ReadAt(p, 200*mib-5); n != 5 || !errors.Is(err, io.EOF) || !bytes.Equal(p[:5], make([]byte, 5)) {
		t.Errorf("the end: %d, %v", n, err)
	}
}

// Layers make a chain when each rests on the one before it, and there are not too many.
func TestCheckChain(t *testing.T) {
	chain := []*Index{indexOf(t, EncodeOptions{Kind: KindDisk}, nil)}
	for len(chain) <= MaxChainLayers {
		chain = append(chain, indexOf(t, EncodeOptions{Kind: KindDisk, Parent: chain[len(chain)-1].ChainID()}, nil))
	}
	alone := indexOf(t, EncodeOptions{Kind: KindDisk, Size: BlockSize}, nil)
	for name, c := range map[string]struct {
		chain []*Index
		want  string
	}{
		"none":     {nil, "requires at least one layer"},
		"one":      {chain[:1], ""},
		"most":     {chain[:MaxChainLayers], ""},
		"more":     {chain, "want at most 128"},
		"no base":  {chain[1:3], "is missing in the chain"},
		"a gap":    {[]*Index{chain[0], chain[2]}, "as its parent layer"},
		"two":      {[]*Index{chain[0], alone}, "as its parent layer"},
		"reversed": {[]*Index{alone, chain[1]}, "as its parent layer"},
	} {
		checkError(t, name, checkChain(c.chain), c.want)
		_, planned := NewFetchPlan(c.chain, 0)
		checkError(t, name, planned, c.want)
		_, seen := LiveFrameBytes(c.chain)
		checkError(t, name, seen, c.want)
		var layers []*Layer
		for _, x := range c.chain {
			layers = append(layers, &Layer{index: x})
		}
		_, opened := OpenChain(layers...)
		checkError(t, name, opened, c.want)
	}
	for held, want := range map[int]string{
		-1: "invalid number of cached layers", 0: "", 2: "", 3: "invalid number of cached layers",
	} {
		_, err := NewFetchPlan(chain[:2], held)
		checkError(t, fmt.Sprint(held), err, want)
	}
}

// A frame is loaded once while the cache has capacity for it, and again after an error; its memory is recycled
// after its last reader.
func TestFramesAreCounted(t *testing.T) {
	c := NewFrameCache(2)
	loads := 0
	get := func(frame int) *cachedFrame {
		f, err := c.get(frameKey{frame: frame}, func(buf []byte) (*frameBytes, error) {
			loads++
			return &frameBytes{raw: append(buf[:0], byte(frame))}, nil
		})
		if err != nil || f.raw[0] != byte(frame) {
			t.Fatalf("frame %d: %v", frame, err)
		}
		return f
	}
	first := get(0)
	again := get(0)
	if first != again || first.refs != 3 {
		t.Errorf("%d users", first.refs)
	}
	c.release(again)
	c.release(first)
	c.release(nil)
	if first.refs != 1 { // the cache
		t.Errorf("%d users", first.refs)
	}
	c.release(get(1))
	c.release(get(0))
	c.release(get(2)) // 1 was used before 0
	c.release(get(0))
	if loads != 3 {
		t.Errorf("%d loads", loads)
	}
	c.release(get(1))
	if loads != 4 || c.lru.Len() != 2 || len(c.byKey) != 2 {
		t.Errorf("%d loads, %d frames", loads, c.lru.Len())
	}
	if _, err := c.get(frameKey{frame: 9}, func([]byte) (*frameBytes, error) { return nil, errTest }); !errors.Is(err,
		errTest) {
		t.Errorf("a frame that cannot be loaded: %v", err)
	}
	if c.lru.Len() != 1 {
		t.Errorf("%d frames are kept", c.lru.Len())
	}
	c.release(get(9))
}

// Zero runs that touch are merged, unless only one of them was discarded.
func TestZeroList(t *testing.T) {
	block := func(at, n int64, discard bool) ZeroRun { return ZeroRun{Run{at * BlockSize, n * BlockSize}, discard} }
	o := EncodeOptions{Kind: KindDisk, Size: 100 * BlockSize, Parent: Digest{1}}
	x := indexOf(t, o, nil, block(1, 1, false), block(2, 2, false), block(4, 1, true), block(5, 1, true),
		block(7, 1, true), block(8, 1, false))
	var got []ZeroRun
	for z := range x.ZeroRuns() {
		got = append(got, z)
	}
	want := []ZeroRun{block(1, 3, false), block(4, 2, true), block(7, 1, true), block(8, 1, false)}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A file that cannot be queried returns an error, and one with holes reports them.
func TestFileSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const size = 8 << 20
	if err := errors.Join(f.Truncate(size), PunchHole(f, 0, size), SyncData(f)); err != nil {
		t.Fatal(err)
	}
	s := FileSource{File: f, Size: size}
	for _, off := range []int64{0, size / 2} {
		start, end, err := s.NextData(off)
		if err != nil || start > end || end > size || start < off {
			t.Errorf("from %d: %d to %d, %v", off, start, end, err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.NextData(0); err == nil {
		t.Error("a closed file tells of its data")
	}
	if err := PunchHole(f, 0, size); err == nil {
		t.Error("a closed file is punched")
	}
	if err := SyncData(f); err == nil {
		t.Error("a closed file is synced")
	}
}

// A work queue returns free items until its context ends.
func TestLineEnds(t *testing.T) {
	l := newWorkQueue(1, func() int { return 7 })
	ctx, cancel := context.WithCancelCause(t.Context())
	if item, err := l.acquire(ctx); item != 7 || err != nil {
		t.Errorf("%d, %v", item, err)
	}
	l.freeItems <- 8
	if item, err := l.acquire(ctx); item != 8 || err != nil {
		t.Errorf("%d, %v", item, err)
	}
	cancel(errTest)
	if _, err := l.acquire(ctx); !errors.Is(err, errTest) {
		t.Errorf("nothing is free: %v", err)
	}
	l.freeItems <- 9
	if _, err := l.acquire(ctx); !errors.Is(err, errTest) {
		t.Errorf("one is free: %v", err)
	}
	fresh := newWorkQueue(1, func() int { return 7 })
	if _, err := fresh.acquire(ctx); !errors.Is(err, errTest) {
		t.Errorf("none was made: %v", err)
	}
}
