package etcd

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// sealed appends the checksum to a database that makes it a complete backup.
func sealed(db []byte) []byte {
	sum := sha256.Sum256(db)
	return append(bytes.Clone(db), sum[:]...)
}

// TestCraftedBackups restores backups with a right checksum and a wrong content: each is refused
// with a message or restored, and none ends the process.
func TestCraftedBackups(t *testing.T) {
	_, file, _, _ := backedUp(t)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	db := whole[:len(whole)-sha256.Size]
	if err := inspectDatabase(bytes.NewReader(db), int64(len(db))); err != nil {
		t.Fatalf("a good backup: %v", err)
	}
	for name, data := range map[string][]byte{
		"zeros": make([]byte, 64<<10), "rubbish": bytes.Repeat([]byte("x"), 64<<10),
		"an eighth":    db[:len(db)/8/512*512],
		"another root": withMeta(db, func(m []byte) { binary.LittleEndian.PutUint64(m[16:], 1<<40) }),
		"a longer end": withMeta(db, func(m []byte) { binary.LittleEndian.PutUint64(m[40:], 1<<50) }),
		"no free list": withMeta(db, func(m []byte) { binary.LittleEndian.PutUint64(m[32:], 3) }),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, sealed(data), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Restore(t.Context(), RestoreOptions{BackupFile: path, Dir: t.TempDir()}); !errors.Is(err,
				errMalformed) {
				t.Errorf("got %v", err)
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 2))
	refused, restored := 0, 0
	for range often(4000) {
		bad := bytes.Clone(db)
		for range 1 + r.IntN(4) { // the beginnings of pages are worth changing
			page := r.IntN(len(bad)/os.Getpagesize()) * os.Getpagesize()
			bad[page+r.IntN(200)] = byte(r.Uint32())
		}
		if inspectDatabase(bytes.NewReader(bad), int64(len(bad))) != nil {
			refused++
			continue
		}
		if restored++; restored > 4 {
			continue
		}
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, sealed(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Restore(t.Context(), RestoreOptions{BackupFile: path, Dir: t.TempDir()})
		t.Logf("restored with %v", err)
	}
	if refused == 0 || restored == 0 {
		t.Errorf("%d refused, %d restored: nothing was tried", refused, restored)
	}
}

// withMeta changes both meta pages of a database, and their checksums.
func withMeta(db []byte, change func(meta []byte)) []byte {
	bad := bytes.Clone(db)
	size := int(binary.LittleEndian.Uint32(bad[pageHeaderSize+8:]))
	for _, at := range []int{pageHeaderSize, size + pageHeaderSize} {
		m := bad[at : at+metaPageSize]
		change(m)
		sum := fnv.New64a()
		_, _ = sum.Write(m[:metaPageSize-8])
		binary.LittleEndian.PutUint64(m[metaPageSize-8:], sum.Sum64())
	}
	return bad
}

// small returns a database of pairs in a bucket.
func small(t testing.TB, bucket string, pairs map[string]string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: 512})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		for key, value := range pairs {
			err = errors.Join(err, b.Put([]byte(key), []byte(value)))
		}
		return err
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const (
	firstRevision = "\x00\x00\x00\x00\x00\x00\x00\x02_\x00\x00\x00\x00\x00\x00\x00\x00"
	aRecord       = "\x0a\x01k\x10\x02\x18\x02\x20\x01\x2a\x01v"
)

// TestInspect: inspect distinguishes what etcd can load from what it would panic at.
func TestInspect(t *testing.T) {
	for name, tc := range map[string]struct {
		bucket string
		pairs  map[string]string
		good   bool
	}{
		"a record":         {recordBucket, map[string]string{firstRevision: aRecord}, true},
		"no records":       {"other", map[string]string{"a": "b"}, false},
		"a short revision": {recordBucket, map[string]string{"abc": aRecord}, false},
		"no line": {recordBucket, map[string]string{firstRevision[:8] + "x" +
			firstRevision[9:]: aRecord}, false},
		"a negative one": {recordBucket, map[string]string{"\xff" + firstRevision[1:]: aRecord}, false},
		"twice": {recordBucket, map[string]string{firstRevision: aRecord, firstRevision +
			"t": aRecord}, false},
		"no such record":    {recordBucket, map[string]string{firstRevision: "\xff\xff"}, false},
		"a record of no id": {recordBucket, map[string]string{firstRevision: "\x10\x02"}, false},
		"a short lease":     {leaseBucket, map[string]string{"abc": ""}, false},
		"a short index":     {metaBucket, map[string]string{"consistent_index": "1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			db := small(t, tc.bucket, tc.pairs)
			err := inspectDatabase(bytes.NewReader(db), int64(len(db)))
			if (err == nil) != tc.good || err != nil && !errors.Is(err, errMalformed) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// manyRevisions returns more pairs than fit on a page.
func manyRevisions() map[string]string {
	many := map[string]string{}
	for i := range byte(100) {
		many[firstRevision[:7]+string([]byte{i + 2})+firstRevision[8:]] = aRecord
	}
	return many
}

// TestKeysOfAnotherPage: bbolt panics in a concurrent goroutine that reads ahead, when the keys of
// a page are not between those of the adjacent pages.
func TestKeysOfAnotherPage(t *testing.T) {
	db, size := small(t, recordBucket, manyRevisions()), 512
	tried := 0
	for at := 0; at < len(db); at += size {
		if binary.LittleEndian.Uint16(db[at+8:]) != branchPage {
			continue
		}
		for i := 1; i < int(binary.LittleEndian.Uint16(db[at+10:])); i++ {
			element := at + pageHeaderSize + i*elementSize
			key := element + int(binary.LittleEndian.Uint32(db[element:]))
			for _, by := range []byte{1, 0xff} { // the page begins before its range, the page before it ends after
				bad := bytes.Clone(db)
				bad[key+7] += by
				tried++
				if err := inspectDatabase(bytes.NewReader(bad), int64(len(bad))); !errors.Is(err, errMalformed) {
					t.Errorf("element %d by %d: got %v", i, by, err)
				}
			}
		}
	}
	if tried < 4 {
		t.Errorf("%d changes were tried", tried)
	}
}

// TestPagesOfTwoKinds: bbolt panics at a page that has a second kind in addition to the right one.
func TestPagesOfTwoKinds(t *testing.T) {
	db, size := small(t, recordBucket, manyRevisions()), 512
	refused := map[uint16]bool{} // kinds of pages
	for at := 0; at < len(db); at += size {
		bad := bytes.Clone(db)
		bad[at+9] |= 0x80 // the kind is a number of two bytes
		if inspectDatabase(bytes.NewReader(bad), int64(len(bad))) != nil {
			refused[binary.LittleEndian.Uint16(db[at+8:])] = true
		}
	}
	if !refused[leafPage] || !refused[branchPage] || !refused[freePage] {
		t.Errorf("refused were pages of the kinds %v", refused)
	}
}

// FuzzInspect reads any bytes as a database: what is accepted is also readable by bbolt.
func FuzzInspect(f *testing.F) {
	for _, db := range [][]byte{small(f, recordBucket, manyRevisions()), small(f, recordBucket,
		map[string]string{firstRevision: aRecord}), nil} {
		f.Add(db)
	}
	f.Fuzz(func(t *testing.T, db []byte) {
		if inspectDatabase(bytes.NewReader(db), int64(len(db))) != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "db")
		if err := os.WriteFile(path, db, 0o600); err != nil {
			t.Fatal(err)
		}
		bolt, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		err = bolt.View(func(tx *bbolt.Tx) error {
			return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
				return b.ForEach(func([]byte, []byte) error { return nil })
			})
		})
		if err = errors.Join(err, bolt.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

// revisionKey returns the key of a record in the database: that of a removal ends in t.
func revisionKey(main, sub uint64, end string) string {
	b := append(binary.BigEndian.AppendUint64(nil, main), '_')
	return string(binary.BigEndian.AppendUint64(b, sub)) + end
}

// recordOf returns a record as etcd writes it.
func recordOf(t *testing.T, kv *mvccpb.KeyValue) string {
	t.Helper()
	data, err := proto.Marshal(kv)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestContents: content that etcd would panic at or misread is refused with a reason, and nothing
// else is.
func TestContents(t *testing.T) {
	type pair struct{ path, key, value string }
	good := recordOf(t, &mvccpb.KeyValue{Key: []byte("k"), ModRevision: 2, CreateRevision: 1, Version: 1})
	one := func(kv *mvccpb.KeyValue) []pair {
		return []pair{{recordBucket, revisionKey(2, 0, ""), recordOf(t, kv)}}
	}
	index := revisionKey(0, 7, "")[revisionKeySize-numberSize:]
	another := "the record of revision 2 has another revision"
	for name, tc := range map[string]struct {
		pairs   []pair
		want    string
		applied uint64
	}{
		"everything": {pairs: []pair{
			{recordBucket, revisionKey(2, 0, ""), good},
			{recordBucket, revisionKey(2, 1, "t"), recordOf(t, &mvccpb.KeyValue{Key: []byte("k")})},
			{recordBucket, revisionKey(3, 0, ""), ""},
			{leaseBucket, "8 bytes.", "anything"},
			{metaBucket, "consistent_index", index},
			{metaBucket, "term", index},
			{metaBucket, "finishedCompactRev", revisionKey(2, 0, "")},
			{metaBucket, "scheduledCompactRev", revisionKey(2, 0, "")},
			{metaBucket, "unknown", "any length"},
			{"members", "x", "y"},
		}, applied: 7},
		"created in its revision": {
			pairs: one(&mvccpb.KeyValue{Key: []byte("k"), ModRevision: 2, CreateRevision: 2, Version: 1}),
		},

		"no bucket":          {[]pair{{"", "k", "v"}}, "a value outside of any bucket", 0},
		"a bucket in one":    {[]pair{{"key/x", "k", "v"}}, `a bucket in bucket "key"`, 0},
		"buckets in buckets": {[]pair{{"key/x/y", "k", "v"}}, `a bucket in bucket "key"`, 0},

		"a short lease": {[]pair{{leaseBucket, "7 bytes", ""}}, "a lease with an id of 7 bytes", 0},
		"a long lease":  {[]pair{{leaseBucket, "9 bytes..", ""}}, "a lease with an id of 9 bytes", 0},
		"a short index": {[]pair{{metaBucket, "consistent_index", "7 bytes"}}, "consistent_index has 7 bytes", 0},
		"a long term":   {[]pair{{metaBucket, "term", "9 bytes.."}}, "term has 9 bytes", 0},
		"a compaction": {
			[]pair{{metaBucket, "scheduledCompactRev", "8 bytes."}},
			"scheduledCompactRev has 8 bytes",
			0,
		},

		"a short revision": {
			[]pair{{recordBucket, revisionKey(2, 0, "")[1:], good}},
			"a revision of 16 bytes",
			0,
		},
		"a long revision":         {[]pair{{recordBucket, revisionKey(2, 0, "tt"), good}}, "a revision of 19 bytes", 0},
		"a removal without its t": {[]pair{{recordBucket, revisionKey(2, 0, "x"), good}}, "a revision of 18 bytes", 0},
		"no line":                 {[]pair{{recordBucket, "12345678x12345678", good}}, "a revision of 17 bytes", 0},
		"a negative revision": {
			[]pair{{recordBucket, revisionKey(1<<63, 0, ""), good}},
			"revisions out of order",
			0,
		},
		"a negative part": {
			[]pair{{recordBucket, revisionKey(2, 1<<63, ""), good}},
			"revisions out of order",
			0,
		},
		"the same revision": {
			[]pair{{recordBucket, revisionKey(2, 0, ""), good}, {recordBucket, revisionKey(2, 0, "t"), good}},
			"revisions out of order", 0,
		},
		"an earlier revision": {
			[]pair{{recordBucket, revisionKey(3, 0, ""), ""}, {recordBucket, revisionKey(2, 0, ""), good}},
			"revisions out of order", 0,
		},

		"no record": {
			[]pair{{recordBucket, revisionKey(2, 0, ""), good + "\xff"}},
			"the record of revision 2 cannot be read", 0,
		},
		"no key": {
			one(&mvccpb.KeyValue{ModRevision: 2, CreateRevision: 1, Version: 1}),
			"the record of revision 2 cannot be read", 0,
		},
		"another revision": {
			one(&mvccpb.KeyValue{Key: []byte("k"), ModRevision: 3, CreateRevision: 1, Version: 1}),
			another, 0,
		},
		"never created": {one(&mvccpb.KeyValue{Key: []byte("k"), ModRevision: 2, Version: 1}), another, 0},
		"created afterwards": {
			one(&mvccpb.KeyValue{Key: []byte("k"), ModRevision: 2, CreateRevision: 3, Version: 1}),
			another, 0,
		},
		"without its version": {one(&mvccpb.KeyValue{Key: []byte("k"), ModRevision: 2, CreateRevision: 1}), another, 0},
	} {
		var c dbContents
		var err error
		for i, p := range tc.pairs {
			path := strings.FieldsFunc(p.path, func(r rune) bool { return r == '/' })
			if err = c.checkPair(path, []byte(p.key), []byte(p.value)); err != nil && i < len(tc.pairs)-1 {
				t.Errorf("%s: pair %d: %v", name, i, err)
			}
		}
		switch {
		case tc.want == "" && (err != nil || c.appliedIndex != tc.applied || !c.inRecordBucket):
			t.Errorf("%s: %v, %+v", name, err, c)
		case tc.want != "" && (err == nil || err.Error() != errMalformed.Error()+": "+tc.want):
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestInspectNamesTheBackup: errors of inspect name the file.
func TestInspectNamesTheBackup(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		writeFiles(t, dir, map[string][]byte{name: data})
		return filepath.Join(dir, name)
	}
	good := sealed(small(t, recordBucket, map[string]string{firstRevision: aRecord}))
	for _, tc := range []struct{ path, want string }{
		{write("good", good), "<nil>"},
		{dir + "/good/x", "open backup file: open DIR/good/x: not a directory"},
		{
			write("empty", sealed(small(t, "other", nil))),
			`DIR/empty cannot be restored: the file is not an etcd database: it has no records; check that it was written by "buildyard backup"`,
		},
		{
			write("cut", good[:2048]),
			`DIR/cut cannot be restored: the file is not an etcd database: it ends before its last page; check that it was written by "buildyard backup"`,
		},
	} {
		if got := strings.ReplaceAll(fmt.Sprint(inspectBackup(tc.path)), dir, "DIR"); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}
