package etcd

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// sealed gives a database the checksum that makes it a whole backup.
func sealed(db []byte) []byte {
	sum := sha256.Sum256(db)
	return append(bytes.Clone(db), sum[:]...)
}

// TestCraftedBackups restores backups with a right checksum and a wrong content: each is
// refused with a sentence or restored, and none ends the process.
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
		"zeros": make([]byte, 64<<10), "rubbish": bytes.Repeat([]byte("x"), 64<<10), "an eighth": db[:len(db)/8/512*512],
		"another root": withMeta(db, func(m []byte) { binary.LittleEndian.PutUint64(m[16:], 1<<40) }),
		"a longer end": withMeta(db, func(m []byte) { binary.LittleEndian.PutUint64(m[40:], 1<<50) }),
		"no free list": withMeta(db, func(m []byte) { binary.LittleEndian.PutUint64(m[32:], 3) }),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, sealed(data), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Restore(t.Context(), RestoreOptions{File: path, Dir: t.TempDir()}); !errors.Is(err, errMalformed) {
				t.Errorf("got %v", err)
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 2))
	refused, restored := 0, 0
	for range often(4000) {
		bad := bytes.Clone(db)
		for range 1 + r.IntN(4) { // where the pages begin is what is worth changing
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
		_, err := Restore(t.Context(), RestoreOptions{File: path, Dir: t.TempDir()})
		t.Logf("restored with %v", err)
	}
	if refused == 0 || restored == 0 {
		t.Errorf("%d refused, %d restored: nothing was tried", refused, restored)
	}
}

// withMeta changes both meta pages of a database, and their checksums.
func withMeta(db []byte, change func(meta []byte)) []byte {
	bad := bytes.Clone(db)
	size := int(binary.LittleEndian.Uint32(bad[pageHeader+8:]))
	for _, at := range []int{pageHeader, size + pageHeader} {
		m := bad[at : at+metaBytes]
		change(m)
		sum := fnv.New64a()
		_, _ = sum.Write(m[:metaBytes-8])
		binary.LittleEndian.PutUint64(m[metaBytes-8:], sum.Sum64())
	}
	return bad
}

// small makes a database of pairs in a bucket.
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

// TestInspect tells what etcd can load from what it would panic at.
func TestInspect(t *testing.T) {
	for name, tc := range map[string]struct {
		bucket string
		pairs  map[string]string
		good   bool
	}{
		"a record":          {recordBucket, map[string]string{firstRevision: aRecord}, true},
		"no records":        {"other", map[string]string{"a": "b"}, false},
		"a short revision":  {recordBucket, map[string]string{"abc": aRecord}, false},
		"no line":           {recordBucket, map[string]string{firstRevision[:8] + "x" + firstRevision[9:]: aRecord}, false},
		"a negative one":    {recordBucket, map[string]string{"\xff" + firstRevision[1:]: aRecord}, false},
		"twice":             {recordBucket, map[string]string{firstRevision: aRecord, firstRevision + "t": aRecord}, false},
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

// manyRevisions needs more than a page.
func manyRevisions() map[string]string {
	many := map[string]string{}
	for i := range byte(100) {
		many[firstRevision[:7]+string([]byte{i + 2})+firstRevision[8:]] = aRecord
	}
	return many
}

// TestKeysOfAnotherPage: bbolt panics beside a goroutine that reads on, when the keys of a page are not between those
// of the pages beside it.
func TestKeysOfAnotherPage(t *testing.T) {
	db, size := small(t, recordBucket, manyRevisions()), 512
	tried := 0
	for at := 0; at < len(db); at += size {
		if binary.LittleEndian.Uint16(db[at+8:]) != branchPage {
			continue
		}
		for i := 1; i < int(binary.LittleEndian.Uint16(db[at+10:])); i++ {
			element := at + pageHeader + i*elementSize
			key := element + int(binary.LittleEndian.Uint32(db[element:]))
			for _, by := range []byte{1, 0xff} { // the page begins before its place, the page before it ends behind
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

// TestPagesOfTwoKinds: bbolt panics at a page that has a second kind beside the right one.
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

// FuzzInspect reads anything as a database: what is accepted is also what bbolt can read.
func FuzzInspect(f *testing.F) {
	for _, db := range [][]byte{small(f, recordBucket, manyRevisions()), small(f, recordBucket, map[string]string{firstRevision: aRecord}), nil} {
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
