package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/transfer"
)

// openLazyPull pushes files once and opens a lazy pull of them.
func openLazyPull(
	t *testing.T, s *server, dir string, change func(*transfer.LazyOptions),
) (*transfer.LazyPull, *transfer.LazyDisk) {
	t.Helper()
	o := transfer.LazyOptions{PullOptions: transfer.PullOptions{
		Ref: transfer.VersionRef{ID: templateID, Tag: "v1"}, Dir: dir,
	}, MinBytes: 1}
	if change != nil {
		change(&o)
	}
	f, err := s.client(t).OpenLazyPull(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	d := f.Disks()["disk.img"]
	if d == nil {
		t.Fatalf("disks: %v", f.Disks())
	}
	return f, d
}

// readsAs reads random ranges and compares them with the file that was pushed.
func readsAs(ctx context.Context, d *transfer.LazyDisk, want []byte, seed uint64, n int) error {
	random := rand.New(rand.NewPCG(seed, 7))
	for range n {
		off := random.Int64N(d.Size())
		p := make([]byte, 1+random.IntN(int(min(d.Size()-off, 300<<10))))
		zero, err := d.ReadAt(ctx, p, off)
		if err != nil {
			return err
		}
		if zero {
			clear(p)
		}
		if !bytes.Equal(p, want[off:off+int64(len(p))]) {
			return errors.New("a read returned other bytes than were pushed")
		}
	}
	return nil
}

// TestLazyPull: a disk that is not raw is here before a VM starts. While frames come, damaged and cut ones among them,
// each read returns what was pushed, and an ordinary version remains.
func TestLazyPull(t *testing.T) {
	s := serve(t, t.TempDir())
	files := threeFiles(t)
	mustPush(t, s.client(t), pushOptions("v1", files...))
	want, err := os.ReadFile(files[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	var fetched, damaged atomic.Int64
	disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if !isBulk(r) {
			h.ServeHTTP(w, r)
			return
		}
		switch n := fetched.Add(1); {
		case n%5 == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case n%5 == 2:
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, r)
			body := answer.Body.Bytes()
			if len(body) > 0 {
				body[len(body)/2] ^= 1
				damaged.Add(1)
			}
			maps.Copy(w.Header(), answer.Header())
			w.WriteHeader(answer.Code)
			_, _ = w.Write(body)
		default:
			h.ServeHTTP(w, r)
		}
	}
	s.disturb.Store(&disturb)
	dir := t.TempDir()
	journals := func() int {
		list, err := filepath.Glob(filepath.Join(dir, "*.journal"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	var completed atomic.Int64
	var partial *transfer.Partial
	f, d := openLazyPull(t, s, dir, func(o *transfer.LazyOptions) {
		o.OnPartial = func(p *transfer.Partial) { partial = p }
		o.Complete = func(r transfer.PullResult) error {
			_, err := os.Stat(filepath.Join(dir, files[0].Name))
			if err != nil || journals() == 0 || len(r.Files) != len(files) {
				t.Errorf("when all is here: %v, %d journals, %+v", err, journals(), r.Files)
			}
			completed.Add(1)
			return nil
		}
	})
	if state := d.State(); state.Total == 0 || state.Bytes == state.Total {
		t.Errorf("before: %+v", state)
	}
	early, err := os.ReadFile(files[2].Path)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1<<20)
	if err := partial.ReadAt(files[2].Name, got, 0); err != nil || !bytes.Equal(got, early[:len(got)]) {
		t.Error("other nodes cannot read a file that is finished:", err)
	}
	for _, name := range []string{"config.json", files[1].Name, files[2].Name} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error("a VM could not start:", err)
		}
	}
	group, ctx := errgroup.WithContext(t.Context())
	group.Go(func() error { _, err := f.Run(ctx); return err })
	for reader := range uint64(4) {
		group.Go(func() error { return readsAs(ctx, d, want, reader, 60) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if state := d.State(); state.Bytes != state.Total || state.Readers != 0 {
		t.Errorf("at the end: %+v", state)
	}
	if err := readsAs(t.Context(), d, want, 99, 50); err != nil {
		t.Error("after the end:", err)
	}
	mustHold(t, dir, files)
	if completed.Load() != 1 || journals() != 0 {
		t.Errorf("completed %d times, %d journals are left", completed.Load(), journals())
	}
	if damaged.Load() == 0 {
		t.Error("no frame was damaged")
	}
	mustPull(t, s.client(t), "v1", dir, files) // nothing is left to do
}

// TestLazyPullDemand: a read fetches its frames while nothing else is fetched, and a trace is what was read first.
func TestLazyPullDemand(t *testing.T) {
	s := serve(t, t.TempDir())
	files := threeFiles(t)
	mustPush(t, s.client(t), pushOptions("v1", files...))
	want, err := os.ReadFile(files[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	f, d := openLazyPull(t, s, t.TempDir(), nil)
	extents := int64(0)
	for e := range d.Extents(0, d.Size()) {
		if e.End <= extents {
			t.Fatalf("extent to %d after %d", e.End, extents)
		}
		extents = e.End
	}
	if extents != d.Size() {
		t.Errorf("extents end at %d of %d", extents, d.Size())
	}
	p := make([]byte, 4096)
	if zero, err := d.ReadAt(t.Context(), p, 20<<20); err != nil || !zero { // nothing runs
		t.Errorf("a hole: %t %v", zero, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { _, err := f.Run(ctx); ran <- err }()
	at := int64(40 << 20)
	if zero, err := d.ReadAt(t.Context(), p[:100], at); err != nil || zero || !bytes.Equal(p[:100], want[at:at+100]) {
		t.Errorf("a read: %t %v", zero, err)
	}
	if trace := d.Trace(); len(trace.Frames) != 1 || len(trace.Roots) != 1 {
		t.Errorf("trace %v", trace)
	}
	cancel()
	if err := <-ran; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestLazyPullResumes: what is here after an interruption is not fetched again, and an ordinary pull resumes with it.
func TestLazyPullResumes(t *testing.T) {
	s := serve(t, t.TempDir())
	files := []file{write(t, "disk.img", api.FileDisk, "raw", 200<<20, map[int64]int{0: 64 << 20, 100 << 20: 64 << 20})}
	mustPush(t, s.client(t), pushOptions("v1", files...))
	dir := t.TempDir()
	var bulk atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if isBulk(r) && bulk.Add(1) >= 3 {
			cancel()
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		h.ServeHTTP(w, r)
	}
	f, d := openLazyPull(t, s, dir, nil)
	s.disturb.Store(&disturb)
	if _, err := d.ReadAt(t.Context(), make([]byte, 10), d.Size()); err != nil {
		t.Error("a read of nothing:", err)
	}
	_, runErr := f.Run(ctx)
	here := d.State().Bytes
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s.disturb.Store(nil)
	if !errors.Is(runErr, context.Canceled) {
		t.Fatal("it was not interrupted:", runErr)
	}
	_, again := openLazyPull(t, s, dir, nil)
	if got := again.State().Bytes; got != here {
		t.Errorf("%d bytes are here after the interruption, %d before it", got, here)
	}
	mustPull(t, s.client(t), "v1", dir, files)
}

// TestLazyPullEndsForGood: a version that the registry no longer has ends the lazy pull with an error.
func TestLazyPullEndsForGood(t *testing.T) {
	s := serve(t, t.TempDir())
	files := []file{write(t, "disk.img", api.FileDisk, "raw", 8<<20, map[int64]int{0: 8 << 20})}
	mustPush(t, s.client(t), pushOptions("v1", files...))
	f, d := openLazyPull(t, s, t.TempDir(), nil)
	disturb := func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { http.Error(w, "gone", http.StatusGone) }
	s.disturb.Store(&disturb)
	group, ctx := errgroup.WithContext(t.Context())
	group.Go(func() error { _, err := f.Run(ctx); return err })
	group.Go(func() error { _, err := d.ReadAt(ctx, make([]byte, 4096), 0); return err })
	if err := group.Wait(); err == nil {
		t.Error("no error")
	}
}

// TestBootTrace: what a boot read is in the manifest once two senders have sent it, in an order that the next pull
// follows, and wrong numbers are ignored.
func TestBootTrace(t *testing.T) {
	s := serve(t, t.TempDir())
	files := threeFiles(t)
	mustPush(t, s.client(t), pushOptions("v1", files...))
	f, d := openLazyPull(t, s, t.TempDir(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { _, err := f.Run(ctx); ran <- err }()
	for _, off := range []int64{40 << 20, 0, 6 << 20} {
		if _, err := d.ReadAt(ctx, make([]byte, 10), off); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	<-ran
	read := d.Trace()
	if len(read.Frames) != 3 || slices.IsSorted(read.Frames) {
		t.Fatalf("frames %v", read.Frames)
	}
	if err := f.SendTrace(t.Context()); err != nil {
		t.Fatal(err)
	}
	traceOf := func() []int {
		m, err := s.client(t).PeekManifest(t.Context(), transfer.VersionRef{ID: templateID, Tag: "v1"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range m.Files {
			if m.Files[i].Name == "disk.img" {
				return m.Files[i].Trace
			}
		}
		return nil
	}
	if got := traceOf(); got != nil {
		t.Errorf("one sender decides: %v", got)
	}
	read.Frames = append([]int{1 << 20}, read.Frames...)
	other := api.BootTrace{
		ID: templateID, ContentID: f.Manifest().ContentID, Files: map[string]api.FileTrace{"disk.img": read},
	}
	for _, sender := range []string{"node a", "node b"} {
		if err := s.reg.AddBootTrace(sender, other); err != nil {
			t.Fatal(err)
		}
	}
	if got := traceOf(); !slices.Equal(got, read.Frames) {
		t.Errorf("trace %v, want %v", got, read.Frames)
	}
	_, next := openLazyPull(t, s, t.TempDir(), nil)
	if got := transfer.TracedFrames(next, traceOf()); !slices.Equal(got, read.Frames[1:]) { // one layer
		t.Errorf("frames of the plan: %v, want %v", got, read.Frames[1:])
	}
}
