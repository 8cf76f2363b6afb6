package etcd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

const testPage = 512 // bytes of a page in these tests

// boltElement is a part of a page: of a leaf with flags and a value, of a branch with a page.
type boltElement struct {
	key, value string
	flags      uint32
	page       uint64
}

// boltPage returns a page that is as long as its content.
func boltPage(id uint64, kind uint16, elements ...boltElement) []byte {
	le := binary.LittleEndian
	page := make([]byte, pageHeaderSize+len(elements)*elementSize)
	le.PutUint64(page, id)
	le.PutUint16(page[8:], kind)
	le.PutUint16(page[10:], uint16(len(elements)))
	for i, e := range elements {
		at := pageHeaderSize + i*elementSize
		keyAt := uint32(len(page) - at)
		if kind == leafPage {
			le.PutUint32(page[at:], e.flags)
			le.PutUint32(page[at+4:], keyAt)
			le.PutUint32(page[at+8:], uint32(len(e.key)))
			le.PutUint32(page[at+12:], uint32(len(e.value)))
		} else {
			le.PutUint32(page[at:], keyAt)
			le.PutUint32(page[at+4:], uint32(len(e.key)))
			le.PutUint64(page[at+8:], e.page)
		}
		page = append(append(page, e.key...), e.value...)
	}
	return page
}

// boltBucket is an element that is a bucket with a separate page.
func boltBucket(name string, root uint64) boltElement {
	return boltElement{key: name, flags: bucketLeaf, value: string(binary.LittleEndian.AppendUint64(nil, root)) +
		"sequence"}
}

// boltInline is an element that is a bucket within its value.
func boltInline(name string, elements ...boltElement) boltElement {
	e := boltBucket(name, 0)
	e.value += string(boltPage(0, leafPage, elements...))
	return e
}

// boltFile is a database with a page of each kind, which the cases change: 2 is the free list, 3
// the root, 4 a branch over 5 and 6 (with 7 as its overflow), and 8 and 9 are free.
type boltFile struct{ data []byte }

func newBoltFile() *boltFile {
	f := &boltFile{make([]byte, 10*testPage)}
	f.meta(0, 1, func(m []byte) { binary.LittleEndian.PutUint64(m[16:], 9) }) // an older one with another root
	f.meta(1, 2, nil)
	f.free(2, 8, 9)
	f.put(3, boltPage(3, leafPage, boltInline("empty"), boltInline("inline", boltElement{key: "k", value: "v"}),
		boltBucket("tree", 4)))
	f.put(4, boltPage(4, branchPage, boltElement{key: "b", page: 5}, boltElement{key: "m", page: 6}))
	f.put(5, boltPage(5, leafPage, boltElement{key: "b", value: "1"}, boltElement{key: "c"}))
	f.put(6,
		boltPage(6, leafPage,
			boltElement{key: "m", value: strings.Repeat("x", 2*testPage-pageHeaderSize-elementSize-1)}))
	f.data[6*testPage+12] = 1
	return f
}

func (f *boltFile) put(id int, page []byte) { copy(f.data[id*testPage:], page) }

// free writes a list of free pages.
func (f *boltFile) free(id int, free ...uint64) {
	page := boltPage(uint64(id), freePage)
	binary.LittleEndian.PutUint16(page[10:], uint16(len(free)))
	for _, one := range free {
		page = binary.LittleEndian.AppendUint64(page, one)
	}
	f.put(id, page)
}

// meta writes a meta page with a right checksum.
func (f *boltFile) meta(id int, transaction uint64, change func(meta []byte)) {
	le := binary.LittleEndian
	page := make([]byte, pageHeaderSize+metaPageSize)
	le.PutUint64(page, uint64(id))
	m := page[pageHeaderSize:]
	le.PutUint32(m, boltMagic)
	le.PutUint32(m[4:], boltVersion)
	le.PutUint32(m[8:], testPage)
	le.PutUint64(m[16:], 3)
	le.PutUint64(m[32:], 2)
	le.PutUint64(m[40:], uint64(len(f.data)/testPage))
	le.PutUint64(m[48:], transaction)
	if change != nil {
		change(m)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(m[:metaPageSize-8])
	le.PutUint64(m[metaPageSize-8:], sum.Sum64())
	f.put(id, page)
}

// set changes a number of the newer meta page.
func (f *boltFile) set(at int, to uint64) {
	f.meta(1, 2, func(m []byte) { binary.LittleEndian.PutUint64(m[at:], to) })
}

// nested returns a bucket in a bucket, to the given depth.
func nested(depth int) boltElement {
	e := boltInline("x")
	for range depth - 1 {
		e = boltInline("x", e)
	}
	return e
}

// TestPagesAsTheyAre: every form of a page is read, and the pairs come in the order of their keys.
func TestPagesAsTheyAre(t *testing.T) {
	long := "[tree] m=" + strings.Repeat("x", 2*testPage-pageHeaderSize-elementSize-1)
	all := []string{"[inline] k=v", "[tree] b=1", "[tree] c=", long}
	for name, tc := range map[string]struct {
		change func(f *boltFile)
		want   []string
	}{
		"each kind of page": {func(*boltFile) {}, all},
		"no free list":      {func(f *boltFile) { f.set(32, noFreelist); clear(f.data[2*testPage : 3*testPage]) }, all},
		"a torn meta page":  {func(f *boltFile) { f.meta(0, 1, nil); f.data[testPage+pageHeaderSize+50]++ }, all},
		"a long free list": {func(f *boltFile) {
			f.free(2, 2, 8, 9) // its first word is the count
			binary.LittleEndian.PutUint16(f.data[2*testPage+10:], longFreelistCount)
		}, all},
		"a full free list": {func(f *boltFile) {
			f.data = append(f.data, make([]byte, 62*testPage)...)
			free := []uint64{8, 9}
			for id := uint64(10); len(free) < (testPage-pageHeaderSize)/8; id++ {
				free = append(free, id)
			}
			f.meta(1, 2, nil)
			f.free(2, free...)
		}, all},
		"a branch that begins with no key": {func(f *boltFile) {
			f.put(4, boltPage(4, branchPage, boltElement{page: 5}, boltElement{key: "m", page: 6}))
		}, all},
		"a deep nest": {func(f *boltFile) {
			f.data = append(f.data, make([]byte, 10*testPage)...)
			f.set(16, 10)
			f.put(10, boltPage(10, leafPage, nested(maxDepth)))
			f.data[10*testPage+12] = 9
		}, nil},
	} {
		f := newBoltFile()
		tc.change(f)
		var got []string
		err := walkDatabase(bytes.NewReader(f.data), int64(len(f.data)), func(path []string, key, value []byte) error {
			got = append(got, fmt.Sprintf("%v %s=%s", path, key, value))
			return nil
		})
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %.200q, %v", name, got, err)
		}
	}
}

// TestDamagedPages: each number that bbolt would use without a check is refused with a reason.
func TestDamagedPages(t *testing.T) {
	le := binary.LittleEndian
	at := func(page, offset int) int { return page*testPage + offset }
	u16 := func(page, offset int, to uint16) func(f *boltFile) {
		return func(f *boltFile) { le.PutUint16(f.data[at(page, offset):], to) }
	}
	u32 := func(page, offset int, to uint32) func(f *boltFile) {
		return func(f *boltFile) { le.PutUint32(f.data[at(page, offset):], to) }
	}
	u64 := func(page, offset int, to uint64) func(f *boltFile) {
		return func(f *boltFile) { le.PutUint64(f.data[at(page, offset):], to) }
	}
	meta := func(offset int, to uint64) func(f *boltFile) { return func(f *boltFile) { f.set(offset, to) } }
	free := func(ids ...uint64) func(f *boltFile) { return func(f *boltFile) { f.free(2, ids...) } }
	cut := func(length int) func(f *boltFile) { return func(f *boltFile) { f.data = f.data[:length] } }
	root := func(elements ...boltElement) func(f *boltFile) {
		return func(f *boltFile) { f.put(3, boltPage(3, leafPage, elements...)) }
	}
	bucketOf := func(value string) func(f *boltFile) {
		return root(boltElement{key: "x", flags: bucketLeaf, value: value})
	}
	inlineBranch := string(make([]byte, bucketHeaderSize)) +
		string(boltPage(0, branchPage, boltElement{key: "b", page: 5}))
	const first = pageHeaderSize // the first element of a page
	for name, tc := range map[string]struct {
		change func(f *boltFile)
		want   string
	}{
		"no meta page": {cut(0), "it has no valid meta page"},
		"torn meta pages": {
			func(f *boltFile) { f.data[at(0, 70)]++; f.data[at(1, 70)]++ }, "it has no valid meta page",
		},
		"an end before the list":       {meta(40, 2), "page 2 of 2"},
		"an end before the meta pages": {meta(40, 1), "it ends before its last page"},
		"an end behind the file":       {meta(40, 11), "it ends before its last page"},

		"a root that is a meta page":    {meta(16, 1), "page 1 of 10"},
		"a root behind the end":         {meta(16, 10), "page 10 of 10"},
		"a page with another id":        {u64(3, 0, 4), "page 3 has a wrong head"},
		"a page that overflows the end": {u32(6, 12, 4), "page 6 has a wrong head"},
		"an overflow that is free":      {u32(6, 12, 3), "page 8 is used twice"},
		"a page used twice":             {u64(4, first+8+elementSize, 5), "page 5 is used twice"},
		"a missing page":                {cut(6 * testPage), "page 6: EOF"},
		"half a page":                   {cut(7*testPage + 9), "page 6: EOF"},

		"a free list behind the end":  {meta(32, 10), "page 10 of 10"},
		"a free list of another kind": {u16(2, 8, freePage|leafPage), "its list of free pages is wrong"},
		"a free list of a next kind":  {u16(2, 8, freePage+1), "its list of free pages is wrong"},
		"more free than there are":    {u16(2, 10, (testPage-pageHeaderSize)/8+1), "its list of free pages is wrong"},
		"a free meta page":            {free(8, 1), "page 1 cannot be free"},
		"a free page behind the end":  {free(8, 10), "page 10 cannot be free"},
		"a page that is free twice":   {free(8, 8), "page 8 cannot be free"},
		"a used page that is free":    {free(5), "page 5 is used twice"},
		"the free list is free":       {free(2), "page 2 cannot be free"},

		"no kind":                    {u16(5, 8, 0), "a page of 2 elements and kind 0"},
		"two kinds":                  {u16(5, 8, 3), "a page of 2 elements and kind 3"},
		"a branch without elements":  {u16(4, 10, 0), "a page of 0 elements and kind 1"},
		"as many elements as fit":    {u16(5, 10, 31), "an element that does not follow the one before it"},
		"more elements than fit":     {u16(5, 10, 32), "a page of 32 elements and kind 2"},
		"fewer elements":             {u16(5, 10, 1), "an element that does not follow the one before it"},
		"an element before its page": {u32(5, first+4, 15), "an element that does not follow the one before it"},
		"a value longer than a page": {
			u32(6, first+12, 2*testPage-pageHeaderSize-elementSize), "an element that is not on its page",
		},
		"a gap": {
			u32(5, first+elementSize+4, 19), "an element that does not follow the one before it",
		},
		"a key too small for a page": {
			func(f *boltFile) { f.data[at(5, first+2*elementSize)] = 'a' }, "keys on a page that is not theirs",
		},
		"a key too large for a page": {
			func(f *boltFile) { f.data[at(5, first+2*elementSize+2)] = 'm' }, "keys on a page that is not theirs",
		},
		"the same key twice": {
			func(f *boltFile) { f.data[at(5, first+2*elementSize+2)] = 'b' }, "keys out of order",
		},
		"no key": {
			func(f *boltFile) { f.put(5, boltPage(5, leafPage, boltElement{value: "1"})) }, "keys out of order",
		},
		"a bucket without a sequence": {bucketOf("\x04-------sequenc"), "a bucket of 15 bytes"},
		"a bucket without a page":     {bucketOf(string(make([]byte, bucketHeaderSize+15))), "a bucket of 15 bytes"},
		"a bucket with a branch":      {bucketOf(inlineBranch), "a bucket within a page that is none of values"},
		"a bucket with a torn page": {
			bucketOf(string(make([]byte, bucketHeaderSize+8)) + "\x02\x00\x01\x00----"),
			"a page of 1 elements and kind 2",
		},
		"a bucket on no page": {root(boltBucket("x", 77)), "page 77 of 10"},
		"a bucket in itself":  {root(boltBucket("x", 3)), "page 3 is used twice"},
		"a nest that is too deep": {func(f *boltFile) {
			f.data = append(f.data, make([]byte, 10*testPage)...)
			f.set(16, 10)
			f.put(10, boltPage(10, leafPage, nested(maxDepth+1)))
			f.data[10*testPage+12] = 9
		}, "it is nested too deep"},
	} {
		f := newBoltFile()
		tc.change(f)
		length := int64(len(f.data))
		if strings.Contains(tc.want, "EOF") {
			length = 10 * testPage // the file is cut while it is read
		}
		err := walkDatabase(bytes.NewReader(f.data), length, func([]string, []byte, []byte) error { return nil })
		if !errors.Is(err, errMalformed) || err.Error() != errMalformed.Error()+": "+tc.want {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestMetaPages: a page counts when its whole description of the format is right.
func TestMetaPages(t *testing.T) {
	for name, tc := range map[string]struct {
		at   int
		to   uint32
		good bool
	}{
		"right":                   {at: 8, to: testPage, good: true},
		"another magic number":    {at: 0, to: boltMagic + 1},
		"another version":         {at: 4, to: boltVersion + 1},
		"a page of 256 bytes":     {at: 8, to: 256},
		"the smallest page":       {at: 8, to: 1 << 9, good: true},
		"a page of 768 bytes":     {at: 8, to: 768},
		"the largest page":        {at: 8, to: 1 << 16, good: true},
		"a page of 128 kilobytes": {at: 8, to: 1 << 17},
	} {
		f := newBoltFile()
		f.meta(0, 1, func(m []byte) { binary.LittleEndian.PutUint32(m[tc.at:], tc.to) })
		if _, ok := parseMeta(f.data); ok != tc.good {
			t.Errorf("%s: %t", name, ok)
		}
		f.data[pageHeaderSize+metaPageSize-1]++
		if _, ok := parseMeta(f.data); ok {
			t.Errorf("%s: with a wrong checksum, too", name)
		}
	}
}

// TestWalkEndsWithTheFirstError: walk returns the first error of the function that it calls.
func TestWalkEndsWithTheFirstError(t *testing.T) {
	f, stop, calls := newBoltFile(), errors.New("stop"), 0
	err := walkDatabase(bytes.NewReader(f.data), int64(len(f.data)),
		func([]string, []byte, []byte) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// TestWalkSeesWhatBoltSees: walk finds every pair in databases that were filled and emptied at
// random.
func TestWalkSeesWhatBoltSees(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5 {
		path := filepath.Join(t.TempDir(), "db")
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: 1 << (9 + r.IntN(5)), NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for range 6 {
			err := db.Update(func(tx *bbolt.Tx) error {
				for range 60 {
					bucket, key := fmt.Sprint("bucket", r.IntN(3)), fmt.Sprint("key", r.IntN(200))
					b, err := tx.CreateBucketIfNotExists([]byte(bucket))
					if err != nil {
						return err
					}
					name := fmt.Sprintf("[%s] %s", bucket, key)
					if r.IntN(3) == 0 {
						delete(want, name)
						err = b.Delete([]byte(key))
					} else {
						want[name] = strings.Repeat(key, r.IntN(100))
						err = b.Put([]byte(key), []byte(want[name]))
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		err = walkDatabase(bytes.NewReader(data), int64(len(data)), func(path []string, key, value []byte) error {
			got[fmt.Sprintf("%v %s", path, key)] = string(value)
			return nil
		})
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%d pairs of %d, %v", len(got), len(want), err)
		}
	}
}
