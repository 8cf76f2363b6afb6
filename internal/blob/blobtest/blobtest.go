// Package blobtest is the conformance suite of blob.Store.
//
// It is not a benchmark and knows no implementation.
//
// Invariant: every statement of blob.Store's documentation that a caller relies on
// has a case here.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
)

// Run runs the suite. fresh creates an empty directory and returns a function that opens a store on it. The
// store is opened again to check what is durable.
func Run(t *testing.T, fresh func(t *testing.T) func() blob.Store) {
	for name, test := range map[string]func(*testing.T, func() blob.Store){
		"complete":  testComplete,
		"parts":     testParts,
		"discard":   testDiscard,
		"duplicate": testDuplicate,
		"short":     testShort,
		"drop":      testDrop,
		"trash":     testTrash,
		"condemned": testCondemned,
		"absent":    testAbsent,
		"space":     testSpace,
	} {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

// Layer is a layer made from bytes.
type Layer struct {
	Index  *blob.Index
	Frames []byte // stored bytes of all frames
}

// Make makes a layer of random content that depends on seed only.
func Make(t testing.TB, kind blob.Kind, seed uint64, size int) Layer {
	t.Helper()
	data := make([]byte, size)
	rnd := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = rnd.Read(data)
	var l Layer
	x, err := blob.Encode(t.Context(), source{bytes.NewReader(data)},
		blob.EncodeOptions{Kind: kind, Size: int64(size)}, func(_ blob.Frame, _ int64, stored []byte) error {
			l.Frames = append(l.Frames, stored...)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	l.Index = x
	return l
}

type source struct{ *bytes.Reader }

func (s source) NextData(off int64) (int64, int64, error) { return off, s.Size(), nil }

func put(t *testing.T, s blob.Store, u blob.Upload, l Layer) {
	t.Helper()
	write(t, s, u, 0, l.Frames)
	if err := s.CompleteUpload(t.Context(), u, l.Index); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, s blob.Store, u blob.Upload, off int64, p []byte) {
	t.Helper()
	n, err := s.WritePart(t.Context(), u, off, bytes.NewReader(p))
	if err != nil || n != int64(len(p)) {
		t.Fatalf("part at %d: %d bytes, %v", off, n, err)
	}
}

func mustHold(t *testing.T, s blob.Store, l Layer) {
	t.Helper()
	f, err := s.Open(t.Context(), l.Index.Digest())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	layer, err := blob.OpenLayer(f, st.Size(), l.Index.Digest())
	if err != nil {
		t.Fatal(err)
	}
	if err := layer.Verify(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func mustLack(t *testing.T, s blob.Store, root blob.Digest) {
	t.Helper()
	if f, err := s.Open(t.Context(), root); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			_ = f.Close()
		}
		t.Fatalf("layer is there: %v", err)
	}
}

func testComplete(t *testing.T, open func() blob.Store) {
	s := open()
	for i, kind := range []blob.Kind{blob.KindDisk, blob.KindState, blob.KindFile} {
		l := Make(t, kind, 1, 3<<20+i)
		put(t, s, blob.Upload{PushSession: "a", FileIndex: i}, l)
		mustHold(t, s, l)
		mustHold(t, open(), l)
	}
	empty := Make(t, blob.KindDisk, 1, 0)
	if err := s.CompleteUpload(t.Context(), blob.Upload{PushSession: "b"}, empty.Index); err != nil {
		t.Fatal(err)
	}
	mustHold(t, s, empty)
	list, err := s.List(t.Context())
	if err != nil || len(list) != 4 {
		t.Fatalf("%d layers, %v", len(list), err)
	}
}

// testParts writes parts in any order, twice, and from several goroutines.
func testParts(t *testing.T, open func() blob.Store) {
	s := open()
	l := Make(t, blob.KindDisk, 2, 9<<20+5)
	u := blob.Upload{PushSession: "a"}
	const part = 1<<20 + 17
	var wg sync.WaitGroup
	for off := len(l.Frames) / part * part; off >= 0; off -= part {
		for range 2 {
			wg.Go(func() {
				p := l.Frames[off:min(off+part, len(l.Frames))]
				if n, err := s.WritePart(t.Context(), u, int64(off), bytes.NewReader(p)); err != nil ||
					n != int64(len(p)) {
					t.Errorf("part at %d: %d bytes, %v", off, n, err)
				}
			})
		}
	}
	wg.Wait()
	f, err := s.OpenUpload(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil || !bytes.Equal(got, l.Frames) {
		t.Fatalf("upload differs: %v", err)
	}
	if err := s.CompleteUpload(t.Context(), u, l.Index); err != nil {
		t.Fatal(err)
	}
	mustHold(t, s, l)
}

// testDiscard discards a part in the middle and sends it again.
func testDiscard(t *testing.T, open func() blob.Store) {
	s := open()
	u := blob.Upload{PushSession: "a"}
	if err := s.DiscardRange(t.Context(), u, 0, 1<<20); err != nil {
		t.Fatalf("no upload: %v", err)
	}
	if _, err := s.OpenUpload(t.Context(), u); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("giving up made an upload: %v", err)
	}
	l := Make(t, blob.KindDisk, 4, 3<<20)
	write(t, s, u, 0, l.Frames)
	const off, n = 1<<20 + 5, 1 << 20
	if err := s.DiscardRange(t.Context(), u, off, n); err != nil {
		t.Fatal(err)
	}
	f, err := s.OpenUpload(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil || !bytes.Equal(got[:off], l.Frames[:off]) ||
		!bytes.Equal(got[off+n:], l.Frames[off+n:]) {
		t.Fatalf("bytes beside the range changed: %v", err)
	}
	write(t, s, u, off, l.Frames[off:off+n])
	if err := s.CompleteUpload(t.Context(), u, l.Index); err != nil {
		t.Fatal(err)
	}
	mustHold(t, s, l)
}

func testDuplicate(t *testing.T, open func() blob.Store) {
	s := open()
	l := Make(t, blob.KindDisk, 3, 1<<20)
	put(t, s, blob.Upload{PushSession: "a"}, l)
	put(t, s, blob.Upload{PushSession: "b"}, l)
	mustHold(t, s, l)
	if _, err := s.OpenUpload(t.Context(), blob.Upload{PushSession: "b"}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the second upload stayed: %v", err)
	}
}

// testShort completes an upload that lacks its end, and one that is longer than its layer.
func testShort(t *testing.T, open func() blob.Store) {
	s := open()
	l := Make(t, blob.KindDisk, 4, 2<<20)
	u := blob.Upload{PushSession: "a"}
	write(t, s, u, 0, l.Frames[:len(l.Frames)-1])
	if err := s.CompleteUpload(t.Context(), u, l.Index); err == nil {
		t.Fatal("a short upload was completed")
	}
	mustLack(t, s, l.Index.Digest())
	write(t, s, u, 0, append(bytes.Clone(l.Frames), make([]byte, 1<<20)...))
	if err := s.CompleteUpload(t.Context(), u, l.Index); err != nil {
		t.Fatal(err)
	}
	mustHold(t, s, l)
}

func testDrop(t *testing.T, open func() blob.Store) {
	s := open()
	write(t, s, blob.Upload{PushSession: "a"}, 0, []byte("x"))
	write(t, s, blob.Upload{PushSession: "a", FileIndex: 1}, 0, []byte("x"))
	write(t, s, blob.Upload{PushSession: "b"}, 0, []byte("x"))
	if err := errors.Join(s.DropUploads(t.Context(), "a"), s.DropUploads(t.Context(), "never")); err != nil {
		t.Fatal(err)
	}
	for u, there := range map[blob.Upload]bool{
		{PushSession: "a"}: false, {PushSession: "a", FileIndex: 1}: false, {PushSession: "b"}: true,
	} {
		f, err := s.OpenUpload(t.Context(), u)
		if (err == nil) != there {
			t.Fatalf("%v: %v", u, err)
		}
		if err == nil {
			_ = f.Close()
		}
	}
}

func testTrash(t *testing.T, open func() blob.Store) {
	s := open()
	day := time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)
	for i, kind := range []blob.Kind{blob.KindDisk, blob.KindState} {
		l := Make(t, kind, 5, 1<<20)
		root := l.Index.Digest()
		put(t, s, blob.Upload{PushSession: "a", FileIndex: i}, l)
		held, err := s.Open(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Trash(t.Context(), root, day); err != nil {
			t.Fatal(err)
		}
		mustLack(t, s, root)
		if _, err := io.ReadAll(held); err != nil {
			t.Fatalf("a reader lost its file: %v", err)
		}
		_ = held.Close()
		if ok, err := open().Restore(t.Context(), root); err != nil || !ok {
			t.Fatalf("restore: %v, %v", ok, err)
		}
		mustHold(t, s, l)
		if err := s.Trash(t.Context(), root, day); err != nil {
			t.Fatal(err)
		}
		if n, err := s.PurgeTrash(t.Context(), day.Add(-time.Hour)); err != nil || n != 0 {
			t.Fatalf("purged %d too early, %v", n, err)
		}
		if n, err := s.PurgeTrash(t.Context(), day.Add(time.Hour)); err != nil || n != 1 {
			t.Fatalf("purged %d, %v", n, err)
		}
		if ok, err := s.Restore(t.Context(), root); err != nil || ok {
			t.Fatalf("restored after the purge: %v, %v", ok, err)
		}
	}
}

// testCondemned: a damaged layer leaves its place, never comes back, and goes with the trash.
func testCondemned(t *testing.T, open func() blob.Store) {
	s := open()
	day := time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)
	for i, kind := range []blob.Kind{blob.KindDisk, blob.KindState} {
		l := Make(t, kind, 5, 1<<20)
		root := l.Index.Digest()
		put(t, s, blob.Upload{PushSession: "a", FileIndex: i}, l)
		if err := s.Quarantine(t.Context(), root, day); err != nil {
			t.Fatal(err)
		}
		mustLack(t, s, root)
		if ok, err := s.Restore(t.Context(), root); err != nil || ok {
			t.Fatalf("restored a damaged layer: %v, %v", ok, err)
		}
		put(t, s, blob.Upload{PushSession: "b", FileIndex: i}, l)
		mustHold(t, s, l)
		if n, err := s.PurgeTrash(t.Context(), day.Add(time.Hour)); err != nil || n != 1 {
			t.Fatalf("purged %d, %v", n, err)
		}
		mustHold(t, s, l)
	}
}

func testAbsent(t *testing.T, open func() blob.Store) {
	s := open()
	mustLack(t, s, blob.Digest{1})
	if _, err := s.OpenUpload(t.Context(), blob.Upload{PushSession: "a"}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := s.Trash(t.Context(), blob.Digest{1}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if ok, err := s.Restore(t.Context(), blob.Digest{1}); err != nil || ok {
		t.Fatalf("restored nothing: %v, %v", ok, err)
	}
}

func testSpace(t *testing.T, open func() blob.Store) {
	free, total, err := open().Space(t.Context())
	if err != nil || free < 0 || total <= 0 || free > total {
		t.Fatalf("%d of %d, %v", free, total, err)
	}
}
