package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/blob/blobtest"
	"github.com/buildyard/buildyard/internal/blob/disk"
	"github.com/buildyard/buildyard/internal/blob/s3"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/s3store"
	"github.com/buildyard/buildyard/internal/s3store/s3test"
)

// storage is a bucket and a working directory, in which stores are opened one after the other.
type storage struct {
	t      *testing.T
	server *s3test.Server
	bucket *s3store.Bucket
	lease  *s3store.Lease
	dir    *layout.Dir
	cancel context.CancelFunc
	store  *s3.Store
}

func newStorage(t *testing.T) *storage {
	t.Helper()
	st := &storage{t: t, server: s3test.Start(t), cancel: func() {}}
	o, isReal := s3test.RealOptions()
	if !isReal {
		o = st.server.Options()
	}
	var err error
	if st.bucket, err = s3store.New(o); err != nil {
		t.Fatal(err)
	}
	if st.lease, err = st.bucket.Acquire(t.Context(), s3store.Owner{ID: "test"}); err != nil {
		t.Fatal(err)
	}
	if st.dir, err = layout.Create(t.TempDir(), layout.Hooks{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		st.stop()
		_ = st.dir.Close()
	})
	return st
}

// stop ends the store as the end of its process does: nothing is written any more.
func (st *storage) stop() {
	st.cancel()
	if st.store != nil {
		st.store.Wait()
	}
}

func (st *storage) open() *s3.Store {
	st.t.Helper()
	st.stop()
	var ctx context.Context
	ctx, st.cancel = context.WithCancel(context.Background())
	store, err := s3.Open(ctx, s3.Options{
		Bucket: st.bucket, Lease: st.lease, Dir: st.dir, Staging: disk.New(st.dir), ConfirmPurge: st.lease.Confirm,
	})
	if err != nil {
		st.t.Fatal(err)
	}
	st.store = store
	return store
}

// newestStore is the store that was opened last: a bucket has one owner, so an earlier one is not used any more.
type newestStore struct{ blob.Store }

func TestStore(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) func() blob.Store {
		st, newest := newStorage(t), &newestStore{}
		return func() blob.Store {
			newest.Store = st.open()
			return newest
		}
	})
}

// waitUploaded waits until the server has n parts of uploads.
func (st *storage) waitUploaded(n int) {
	st.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if st.server.Parts() == n {
			return
		}
		if time.Now().After(deadline) {
			st.t.Fatalf("%d parts were uploaded, not %d", st.server.Parts(), n)
		}
	}
}

func mustWrite(t *testing.T, s *s3.Store, u blob.Upload, off int64, p []byte) {
	t.Helper()
	if _, err := s.WritePart(t.Context(), u, off, bytes.NewReader(p)); err != nil {
		t.Fatal(err)
	}
}

func mustVerify(t *testing.T, s *s3.Store, l blobtest.Layer) {
	t.Helper()
	f, err := s.Open(t.Context(), l.Index.Digest())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	layer, err := blob.OpenLayer(f, l.Index.FileSize(), l.Index.Digest())
	if err == nil {
		err = layer.Verify(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestStreaming: the received beginning is uploaded while the rest arrives, and what is written again counts.
func TestStreaming(t *testing.T) {
	st := newStorage(t)
	s := st.open()
	l := blobtest.Make(t, blob.KindDisk, 1, 16<<20)
	u := blob.Upload{PushSession: "a"}
	const part = 1 << 20
	wrong := bytes.Repeat([]byte("wrong"), part/5)
	mustWrite(t, s, u, 3*part, wrong)
	mustWrite(t, s, u, 12*part, l.Frames[12*part:])
	mustWrite(t, s, u, 0, l.Frames[:3*part])
	if st.server.Uploads() != 0 {
		t.Error("an upload began before the first part was complete")
	}
	mustWrite(t, s, u, 4*part-5, l.Frames[4*part-5:12*part])
	st.waitUploaded(3)
	mustWrite(t, s, u, 3*part, l.Frames[3*part:4*part])
	if err := s.CompleteUpload(t.Context(), u, l.Index); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, s, l)
	mustVerify(t, st.open(), l)
	if st.server.Uploads() != 0 {
		t.Errorf("%d uploads are left", st.server.Uploads())
	}
}

// TestResume: a process that begins after a crash keeps the parts that the server has, if they are right.
func TestResume(t *testing.T) {
	st := newStorage(t)
	s := st.open()
	l := blobtest.Make(t, blob.KindDisk, 2, 22<<20)
	u := blob.Upload{PushSession: "a"}
	mustWrite(t, s, u, 0, l.Frames[:16<<20])
	st.waitUploaded(3)
	foreign, err := st.bucket.BeginUpload(t.Context(), "stream_dir/foreign")
	if err != nil {
		t.Fatal(err)
	}
	s = st.open()
	if _, err := st.bucket.ListParts(t.Context(), foreign); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the upload of another registry stayed: %v", err)
	}
	mustWrite(t, s, u, 7<<20, bytes.Repeat([]byte("x"), 1<<20)) // part 2 is uploaded and no longer right
	mustWrite(t, s, u, 7<<20, l.Frames[7<<20:8<<20])
	mustWrite(t, s, u, 16<<20, l.Frames[16<<20:])
	st.server.TakeRequests()
	if err := s.CompleteUpload(t.Context(), u, l.Index); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, s, l)
	puts := 0
	for _, r := range st.server.TakeRequests() {
		if strings.HasPrefix(r, "PUT stream_dir/") {
			puts++
		}
	}
	if puts > 3 {
		t.Errorf("%d of 5 parts were uploaded again", puts)
	}
}

// TestCompleteFails: an upload whose completion failed is completed later, without its parts.
func TestCompleteFails(t *testing.T) {
	st := newStorage(t)
	s := st.open()
	l := blobtest.Make(t, blob.KindState, 3, 12<<20)
	u := blob.Upload{PushSession: "a"}
	mustWrite(t, s, u, 0, l.Frames)
	st.server.SetFault(func(r *http.Request) s3test.Fault {
		if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
			return s3test.Fault{Status: http.StatusNotImplemented}
		}
		return s3test.Fault{}
	})
	if err := s.CompleteUpload(t.Context(), u, l.Index); err == nil {
		t.Fatal("it succeeded")
	}
	if _, err := s.Open(t.Context(), l.Index.Digest()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an incomplete layer: %v", err)
	}
	st.server.SetFault(nil)
	if err := s.CompleteUpload(t.Context(), u, l.Index); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, st.open(), l)
}

// TestUploadEnded: an upload that the bucket has ended begins again when it is completed.
func TestUploadEnded(t *testing.T) {
	st := newStorage(t)
	s := st.open()
	l := blobtest.Make(t, blob.KindDisk, 7, 12<<20)
	u := blob.Upload{PushSession: "a"}
	mustWrite(t, s, u, 0, l.Frames)
	st.waitUploaded(2)
	open, err := st.bucket.ListUploads(t.Context(), "")
	if err != nil || len(open) != 1 {
		t.Fatalf("%v, %v", open, err)
	}
	err = errors.Join(st.bucket.AbortUpload(t.Context(), open[0]), s.CompleteUpload(t.Context(), u, l.Index))
	if err != nil {
		t.Fatal(err)
	}
	mustVerify(t, st.open(), l)
}

// TestOrphan: the bytes of a layer that got no name are purged by a later process, and no others.
func TestOrphan(t *testing.T) {
	st := newStorage(t)
	s := st.open()
	l := blobtest.Make(t, blob.KindDisk, 4, 12<<20)
	u := blob.Upload{PushSession: "a"}
	mustWrite(t, s, u, 0, l.Frames)
	if err := s.CompleteUpload(t.Context(), u, l.Index); err != nil {
		t.Fatal(err)
	}
	st.server.Set("stream_dir/orphan", []byte("bytes"))
	s = st.open()
	if n, err := s.PurgeTrash(t.Context(), time.Now().Add(time.Hour)); n != 0 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if st.server.Get("stream_dir/orphan") != nil || len(st.server.Keys("stream_dir/")) != 1 {
		t.Errorf("objects: %v", st.server.Keys("stream_dir/"))
	}
	mustVerify(t, s, l)
}

// TestForeignMarker: a marker that appeared after the start is not purged: an earlier owner has written it late.
func TestForeignMarker(t *testing.T) {
	st := newStorage(t)
	s := st.open()
	l := blobtest.Make(t, blob.KindDisk, 5, 1<<20)
	u := blob.Upload{PushSession: "a"}
	mustWrite(t, s, u, 0, l.Frames)
	if err := s.CompleteUpload(t.Context(), u, l.Index); err != nil {
		t.Fatal(err)
	}
	key := "images_dir/" + l.Index.Digest().String() + layout.LayerSuffix
	st.server.Set("trash_dir/1-"+l.Index.Digest().String()+layout.LayerSuffix, []byte(`{"key":"`+key+`"}`))
	if n, err := s.PurgeTrash(t.Context(), time.Now().Add(time.Hour)); n != 0 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	mustVerify(t, s, l)
}

// TestReads: sequential reads take one request each, and a response that is cut is continued.
func TestReads(t *testing.T) {
	st := newStorage(t)
	s := st.open()
	l := blobtest.Make(t, blob.KindDisk, 6, 12<<20)
	u := blob.Upload{PushSession: "a"}
	mustWrite(t, s, u, 0, l.Frames)
	if err := s.CompleteUpload(t.Context(), u, l.Index); err != nil {
		t.Fatal(err)
	}
	f, err := s.Open(t.Context(), l.Index.Digest())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(1<<20, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	f.(interface{ ExpectRead(n int64) }).ExpectRead(8 << 20)
	st.server.TakeRequests()
	got := make([]byte, 8<<20)
	if _, err := io.ReadFull(f, got); err != nil || !bytes.Equal(got, l.Frames[1<<20:9<<20]) {
		t.Fatalf("the bytes differ: %v", err)
	}
	if n := len(st.server.TakeRequests()); n != 1 {
		t.Errorf("%d requests", n)
	}
	var n atomic.Int64
	st.server.SetFault(func(*http.Request) s3test.Fault {
		if n.Add(1)%3 != 0 {
			return s3test.Fault{CutAfter: 300_000}
		}
		return s3test.Fault{}
	})
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(f, got); err != nil || !bytes.Equal(got, l.Frames[:8<<20]) {
		t.Fatalf("after cuts the bytes differ: %v", err)
	}
	mustVerify(t, s, l)
}

// TestCompleteIsCanceled: the end of a commit's request ends its wait for the parts that are being uploaded.
func TestCompleteIsCanceled(t *testing.T) {
	st := newStorage(t)
	s := st.open()
	l := blobtest.Make(t, blob.KindDisk, 8, 12<<20)
	u := blob.Upload{PushSession: "a"}
	hang, begun := make(chan struct{}), make(chan struct{}, 10)
	st.server.SetFault(func(r *http.Request) s3test.Fault {
		if !r.URL.Query().Has("partNumber") {
			return s3test.Fault{}
		}
		return s3test.Fault{Before: func() {
			begun <- struct{}{}
			<-hang
		}}
	})
	mustWrite(t, s, u, 0, l.Frames)
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.CompleteUpload(ctx, u, l.Index); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(hang)
	if err := s.CompleteUpload(t.Context(), u, l.Index); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, st.open(), l)
}
