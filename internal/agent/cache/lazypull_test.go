package cache_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/lazyfill"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/transfer"
)

const fillEnv = "TEST_FILL_PROCESS"

// TestMain: the test binary is also the process that pulls a version.
func TestMain(m *testing.M) {
	if os.Getenv(fillEnv) != "" {
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		if err := lazyfill.Main(context.Background(), os.Args[1], log); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// lazyShelf is a shelf whose cache pulls lazily, from a registry that answers a number of requests for ranges.
type lazyShelf struct {
	*shelf
	allowed atomic.Int64
	lost    atomic.Bool // ranges are answered with 410
	lazy    *cache.LazyPulls
	log     lockedBuffer
}

// lockedBuffer is a log that a test reads.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newLazyShelf(t *testing.T) *lazyShelf {
	t.Helper()
	s := &lazyShelf{shelf: &shelf{t: t, dir: t.TempDir()}}
	s.server, s.client, s.core = serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			isRange := r.Header.Get("Range") != ""
			for isRange && s.allowed.Add(-1) < 0 {
				s.allowed.Add(1)
				select {
				case <-r.Context().Done():
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
			if isRange && s.lost.Load() {
				http.Error(w, "gone", http.StatusGone)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	sockets, err := os.MkdirTemp("", "lazy-") // short: an address of a socket has about 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.lazy = &cache.LazyPulls{
		Mode: cache.LazyOn, SocketDir: sockets, SocketGroup: -1,
		Program: lazyfill.Program{Path: self, Env: append(os.Environ(), fillEnv+"=1")},
		Order:   func(cache.Ref, *lazyfill.Order) {},
		Token:   func(context.Context, cache.Ref, string, bool) (string, error) { return "", nil },
	}
	s.restart()
	t.Cleanup(func() {
		s.allowed.Store(1 << 30)
		_ = s.cache.Close()
		s.restart()
		if err := s.cache.ResumeLazyPulls(); err != nil { // ends what no VM uses
			t.Error(err)
		}
	})
	return s
}

// restart opens the cache as the next agent does.
func (s *lazyShelf) restart() {
	s.t.Helper()
	if s.cache != nil {
		if err := s.cache.Close(); err != nil {
			s.t.Fatal(err)
		}
	}
	source := cache.NewRegistry(transfer.Options{}, nil)
	s.t.Cleanup(func() { _ = source.Close() })
	var err error
	s.cache, err = cache.Open(cache.Options{
		Dir: s.dir, Source: source, Lazy: s.lazy, Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// begin starts a lazy pull for a VM and opens the disks for it.
func (s *lazyShelf) begin(ref cache.Ref, vm string) map[string]cache.LazyDisk {
	s.t.Helper()
	s.allowed.Store(1) // the index
	s.cache.Pin(ref.ContentID, vm)
	if err := s.cache.FetchStartable(s.t.Context(), ref, nil); err != nil {
		s.t.Fatal(err)
	}
	if s.cache.Has(ref.ContentID) || !s.cache.IsStartable(ref.ContentID) {
		s.t.Fatal("the version is complete, or cannot be used yet")
	}
	disks, err := s.cache.ServeDisks(s.t.Context(), ref.ContentID, vm, "/nowhere")
	if err != nil {
		s.t.Fatal(err)
	}
	return disks
}

func (s *lazyShelf) eventually(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("waited for %s: %+v", what, s.cache.LazyPulls())
		}
	}
}

// names returns the names in the cache's directory.
func (s *lazyShelf) names() (names []string) {
	s.t.Helper()
	list, err := os.ReadDir(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, item := range list {
		names = append(names, item.Name())
	}
	return names
}

// TestLazyPullOutlivesAgent: the process of a version continues while no agent runs; the next agent finds its VMs,
// lists the version once it is complete, and ends the process when the last VM was moved to the files.
func TestLazyPullOutlivesAgent(t *testing.T) {
	s := newLazyShelf(t)
	path := noise(t, "disk.img", 1, 24)
	ref := s.push("v1", nil, path)
	disks := s.begin(ref, "vm-1")
	if d := disks["disk.img"]; d.Socket == "" || d.Bytes != 24*mib {
		t.Fatalf("disks %+v", disks)
	}
	v, err := s.cache.Version(ref.ContentID)
	if err != nil || v.Dir != filepath.Join(s.dir, ref.ContentID) || len(v.Config) == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	first := s.cache.LazyPulls()[0]
	s.restart()
	if err := syscall.Kill(first.PID, 0); err != nil {
		t.Error("the process ended with the agent:", err)
	}
	s.cache.Pin(ref.ContentID, "vm-1")
	if err := s.cache.ResumeLazyPulls(); err != nil {
		t.Fatal(err)
	}
	if len(s.cache.LazyPulls()) != 1 {
		t.Error("the pull is not among the lazy pulls yet")
	}
	s.eventually("the process of the earlier agent", func() bool { return s.cache.IsStartable(ref.ContentID) })
	s.cache.Pin(ref.ContentID, "vm-3") // which leaves again
	s.cache.Unpin(ref.ContentID, "vm-3")
	again, err := s.cache.ServeDisks(t.Context(), ref.ContentID, "vm-1", "/nowhere")
	if err != nil || again["disk.img"] != disks["disk.img"] || s.cache.LazyPulls()[0].PID != first.PID {
		t.Errorf("disks %+v, before %+v, %v", again, disks, err)
	}
	s.allowed.Store(1 << 30)
	s.eventually("the version", func() bool { return s.cache.Has(ref.ContentID) })
	if now := s.cache.LazyPulls(); len(now) != 1 || !now[0].IsComplete || len(now[0].VMs) != 1 {
		t.Errorf("before the VM was moved: %+v", now)
	}
	if disks, err := s.cache.ServeDisks(t.Context(), ref.ContentID, "vm-2", "/nowhere"); err != nil || len(disks) != 0 {
		t.Errorf("a VM that starts now gets %+v, %v", disks, err)
	}
	s.restart() // and once more
	s.cache.Pin(ref.ContentID, "vm-1")
	if err := s.cache.ResumeLazyPulls(); err != nil {
		t.Fatal(err)
	}
	s.eventually("the process", func() bool { now := s.cache.LazyPulls(); return len(now) == 1 && now[0].IsComplete })
	if err := s.cache.ReleaseDisks(t.Context(), ref.ContentID, "vm-1"); err != nil {
		t.Fatal(err)
	}
	s.eventually("the end of the process", func() bool { return len(s.cache.LazyPulls()) == 0 })
	s.eventually("the process's directory to go", func() bool { return len(s.names()) == 1 })
	got, err := os.ReadFile(s.file(ref, "disk.img"))
	want, err2 := os.ReadFile(path)
	if err != nil || err2 != nil || !bytes.Equal(got, want) {
		t.Errorf("the disk has %d other bytes, %v, %v", len(got), err, err2)
	}
}

// TestLazyPullRestartsItsProcess: a VM that starts while the process is started again gets its disks.
func TestLazyPullRestartsItsProcess(t *testing.T) {
	s := newLazyShelf(t)
	ref := s.push("v1", nil, noise(t, "disk.img", 4, 24))
	first := s.begin(ref, "vm-1")
	pid := s.cache.LazyPulls()[0].PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.cache.Pin(ref.ContentID, "vm-2")
	var second map[string]cache.LazyDisk
	served := make(chan error, 1)
	go func() {
		var err error
		second, err = s.cache.ServeDisks(t.Context(), ref.ContentID, "vm-2", "/nowhere")
		served <- err
	}()
	s.eventually("the next process", func() bool { now := s.cache.LazyPulls()[0]; return now.PID != pid })
	s.eventually("guests to wait", func() bool { return s.cache.GuestsWait() })
	s.allowed.Store(1) // the index, once more
	err := <-served
	if err != nil || second["disk.img"].Socket == "" || second["disk.img"].Socket == first["disk.img"].Socket {
		t.Errorf("disks %+v, of the first VM %+v, %v", second, first, err)
	}
	if now := s.cache.LazyPulls()[0]; now.PID == pid || len(now.VMs) == 0 {
		t.Errorf("the process: %+v", now)
	}
}

// TestLazyPullAgain: a version that is removed as soon as its VM was moved can be pulled again.
func TestLazyPullAgain(t *testing.T) {
	s := newLazyShelf(t)
	ref := s.push("v1", nil, noise(t, "disk.img", 5, 24))
	for range 3 {
		s.begin(ref, "vm-1")
		s.allowed.Store(1 << 30)
		s.eventually("the version", func() bool { return s.cache.Has(ref.ContentID) })
		s.cache.Unpin(ref.ContentID, "vm-1")
		if err := s.cache.Remove(ref.ContentID); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLazyModes: a version is pulled as a whole unless the node, and the version, want it otherwise.
func TestLazyModes(t *testing.T) {
	const large = 100 << 30
	for _, tt := range []struct {
		node, version cache.LazyMode
		bytes         int64
	}{
		{cache.LazyOff, "", large},
		{cache.LazyOff, cache.LazyOn, large}, // the node has the last word
		{cache.LazyOn, cache.LazyOff, large},
		{cache.LazyOn, "", 0},         // it cannot be pulled lazily
		{cache.LazyAuto, "", 1 << 30}, // 8 s
		{cache.LazyAuto, cache.LazyOff, large},
		{cache.LazyOn, cache.LazyAuto, 1 << 30},
	} {
		c := open(t, cache.Options{
			Dir:    t.TempDir(),
			Source: lazySource{&source{}, tt.bytes, tt.version},
			Lazy:   &cache.LazyPulls{Mode: tt.node},
		})
		if err := c.FetchStartable(t.Context(), ref("a"), nil); err != nil || !c.Has("a") {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// lazySource is a source of versions that could be pulled lazily.
type lazySource struct {
	*source
	bytes int64
	mode  cache.LazyMode
}

func (s lazySource) SpaceNeed(
	ctx context.Context, ref cache.Ref, have cache.LocalContent,
) (cache.SpaceNeed, error) {
	need, err := s.source.SpaceNeed(ctx, ref, have)
	need.LazyBytes, need.Lazy = s.bytes, s.mode
	return need, err
}

// TestUnwantedLazyPull: a version that no VM uses any more becomes an interrupted pull, also where its last VM ended
// while no agent ran, and the next pull continues it.
func TestUnwantedLazyPull(t *testing.T) {
	s := newLazyShelf(t)
	ref := s.push("v1", nil, noise(t, "disk.img", 2, 24))
	isInterrupted := func() bool {
		names := s.names()
		return len(names) == 1 && names[0] == ref.ContentID+".partial"
	}
	s.begin(ref, "vm-1")
	pid := s.cache.LazyPulls()[0].PID
	s.cache.Unpin(ref.ContentID, "vm-1")
	s.eventually("an interrupted pull", isInterrupted)
	s.eventually("the end of the process", func() bool { return syscall.Kill(pid, 0) != nil })
	s.begin(ref, "vm-2")
	s.restart()
	if err := s.cache.ResumeLazyPulls(); err != nil {
		t.Fatal(err)
	}
	if !isInterrupted() {
		t.Errorf("the cache has %v", s.names())
	}
	s.allowed.Store(1 << 30)
	s.fetch(ref)
	if names := s.names(); len(names) != 1 || names[0] != ref.ContentID {
		t.Errorf("the cache has %v", names)
	}
}

// TestLazyPullWhoseVersionIsLost: the failure reaches who waits, no VM starts any more, and later callers pull again.
func TestLazyPullWhoseVersionIsLost(t *testing.T) {
	s := newLazyShelf(t)
	ref := s.push("v1", nil, noise(t, "disk.img", 3, 24))
	s.begin(ref, "vm-1")
	failed := make(chan error, 1)
	go func() { failed <- s.cache.Fetch(t.Context(), ref, nil) }()
	s.lost.Store(true)
	s.allowed.Store(1 << 30)
	s.eventually("the failure", func() bool {
		now := s.cache.LazyPulls()
		return len(now) == 1 && now[0].Phase == lazyfill.Failed
	})
	s.eventually("no more starts", func() bool { return !s.cache.IsStartable(ref.ContentID) })
	if disks, err := s.cache.ServeDisks(t.Context(), ref.ContentID, "vm-2", "/nowhere"); err == nil {
		t.Errorf("a VM gets disks of a pull that has failed: %+v", disks)
	}
	late := make(chan error, 1)
	go func() { late <- s.cache.FetchStartable(t.Context(), ref, nil) }()
	s.eventually("a later caller", func() bool { return s.cache.Waiters(ref.ContentID) == 2 })
	s.lost.Store(false)
	if err := s.cache.ReleaseDisks(t.Context(), ref.ContentID, "vm-1"); err != nil { // the agent has ended the VM
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Error("no error")
	}
	if err := <-late; err != nil {
		t.Error("a later caller does not pull again:", err)
	}
	s.eventually("the version", func() bool { return s.cache.Has(ref.ContentID) })
}

// TestListingIsRetried: a version that cannot be listed at first, since its disk is full for example, is listed later.
func TestListingIsRetried(t *testing.T) {
	s := newLazyShelf(t)
	ref := s.push("v1", nil, noise(t, "disk.img", 6, 24))
	s.begin(ref, "vm-1")
	fact := filepath.Join(s.dir, ref.ContentID, "version.json")
	if err := os.MkdirAll(filepath.Join(fact, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.allowed.Store(1 << 30)
	s.eventually("all of the version", func() bool { return s.cache.LazyPulls()[0].Phase == lazyfill.Complete })
	s.eventually("a failed attempt", func() bool { return strings.Contains(s.log.String(), "listing a version") })
	if err := os.RemoveAll(fact); err != nil {
		t.Fatal(err)
	}
	s.eventually("the version", func() bool { return s.cache.Has(ref.ContentID) })
}

// TestEndIsRetried: an obstacle at the end of a lazy pull does not keep the version from being pulled again.
func TestEndIsRetried(t *testing.T) {
	s := newLazyShelf(t)
	ref := s.push("v1", nil, noise(t, "disk.img", 7, 24))
	s.begin(ref, "vm-1")
	obstacle := filepath.Join(s.dir, ref.ContentID+".partial", "in the way")
	if err := os.MkdirAll(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	s.cache.Unpin(ref.ContentID, "vm-1")
	s.eventually("a failed attempt", func() bool { return strings.Contains(s.log.String(), "failed; retrying") })
	if err := os.RemoveAll(filepath.Dir(obstacle)); err != nil {
		t.Fatal(err)
	}
	s.allowed.Store(1 << 30)
	s.fetch(ref)
}

// TestReadByPeerIsNoUse: a version that other nodes read does not become a recently used one of this node.
func TestReadByPeerIsNoUse(t *testing.T) {
	s := newLazyShelf(t)
	ref := s.push("v1", nil, noise(t, "disk.img", 8, 2))
	s.allowed.Store(1 << 30)
	s.fetch(ref)
	fact, old := filepath.Join(s.dir, ref.ContentID, "version.json"), time.Unix(1_700_000_000, 0)
	if err := os.Chtimes(fact, old, old); err != nil {
		t.Fatal(err)
	}
	r, err := s.cache.OpenRuns(t.Context(), ref.ContentID, "disk.img", []blob.Run{{Off: 0, Len: 4096}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(fact); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("its last use: %v, %v", info.ModTime(), err)
	}
	if err := s.cache.Remove(ref.ContentID); err != nil { // it is not pinned any more
		t.Error(err)
	}
}
