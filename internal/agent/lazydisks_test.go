package agent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/agent/lazyfill"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/guesttest"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
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

// The bytes of the second disk that are held. A guest that boots reads the beginning and the end of each disk.
const (
	dataBytes        = 48 << 20
	heldFrom, heldTo = 4 << 20, dataBytes - 4<<20
)

// lazyRegistry is a registry with a guest whose second disk can be held.
type lazyRegistry struct {
	url     string
	version api.PushResult
	data    []byte // of the second disk

	mu      sync.Mutex
	held    chan struct{}              // closed when frames of the second disk are sent again
	status  int                        // instead of frames; 0: frames
	isFrame func(r *http.Request) bool // of the second disk
}

// newLazyRegistry pushes the demo guest with a second disk.
func newLazyRegistry(t *testing.T, disk string) *lazyRegistry {
	t.Helper()
	core, err := registry.Open(t.Context(), registry.Options{Base: t.TempDir(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	c := &lazyRegistry{data: make([]byte, dataBytes), isFrame: func(*http.Request) bool { return false }}
	c.release()
	_, _ = rand.NewChaCha8([32]byte{3}).Read(c.data)
	h := rest.Handler(registryrest.Routes(core), slog.New(slog.DiscardHandler))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		held, status, isFrame := c.held, c.status, c.isFrame(r)
		c.mu.Unlock()
		if isFrame {
			select {
			case <-held:
			case <-r.Context().Done():
				return
			}
			if status != 0 {
				w.WriteHeader(status)
				return
			}
		}
		h.ServeHTTP(w, r)
	}))
	client, err := transfer.New(transfer.Options{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		c.release()
		server.Close()
		_ = core.Close()
	})
	data := filepath.Join(t.TempDir(), "data.raw")
	if err := os.WriteFile(data, c.data, 0o600); err != nil {
		t.Fatal(err)
	}
	c.version, err = client.Push(t.Context(), transfer.PushOptions{
		Request: api.PushRequest{Name: "debian", Tag: "v1", Config: json.RawMessage(
			`{"ram":"256M","cpu":{"cores":1},"hard_drives":[{"file":"system.raw","format":"raw"},` +
				`{"file":"data.raw","format":"raw"}]}`)},
		Files: []transfer.PushFile{
			{Name: "system.raw", Disk: &diskfile.Disk{Path: disk, Format: "qcow2"}, Kind: api.FileDisk},
			{Name: "data.raw", Path: data, Kind: api.FileDisk, Format: "raw"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := client.Manifest(t.Context(), transfer.VersionRef{ID: c.version.ID, ContentID: c.version.ContentID})
	if err != nil {
		t.Fatal(err)
	}
	layer := m.Files[1].Layers[0]
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isFrame = func(r *http.Request) bool {
		var from int64
		_, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
		return err == nil && from >= heldFrom && from < heldTo && strings.Contains(r.URL.Path, layer.Root)
	}
	c.url = server.URL
	return c
}

// hold holds the frames of the second disk until release.
func (c *lazyRegistry) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = make(chan struct{})
}

func (c *lazyRegistry) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = make(chan struct{})
	}
	select {
	case <-c.held:
	default:
		close(c.held)
	}
}

// answer makes requests for frames of the second disk fail.
func (c *lazyRegistry) answer(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// bootLazy starts an agent whose VMs start before their template is complete.
func bootLazy(t *testing.T, name string, c *lazyRegistry) *realNode {
	t.Helper()
	sockets, err := os.MkdirTemp("", "lazy-") // short: an address of a socket has about 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	if err := os.Chmod(sockets, 0o755); err != nil { // QEMU may be another user
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return bootReal(t, name, t.TempDir(), c.url, func(n *realNode, o *cache.Options) {
		_, group := n.driver.SocketUser("")
		o.Lazy = &cache.LazyPulls{
			Mode: cache.LazyOn, SocketDir: sockets, SocketGroup: group,
			Program: lazyfill.Program{Path: self, Env: append(os.Environ(), fillEnv+"=1")},
			Order:   func(cache.Ref, *lazyfill.Order) {},
			Token:   func(context.Context, cache.Ref, string, bool) (string, error) { return "", nil },
		}
	})
}

// eventually waits until a condition holds.
func (n *realNode) eventually(what string, is func() bool) {
	n.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("waited for %s: %+v", what, n.cache.LazyPulls())
		}
	}
}

// TestStartBeforePullEnds: a guest runs while its second disk is held; the process that serves the disks is killed, the
// guest's read waits and returns what was pushed; in the end the VM reads the files, and can be saved.
func TestStartBeforePullEnds(t *testing.T) {
	t.Parallel()
	disk := guesttest.Disk(t)
	guesttest.Turn(t, 1)
	c := newLazyRegistry(t, disk)
	c.hold()
	n := bootLazy(t, "lazy", c)
	v := c.version
	n.start("1", v.ID, "v1", v.ContentID)
	if n.cache.Has(v.ContentID) {
		t.Fatal("the version is complete")
	}
	state := n.cache.LazyPulls()[0]
	if _, served := state.VMs[idA]; !served || state.IsComplete {
		t.Fatalf("%+v", state)
	}
	sum := make(chan string, 1)
	go func() { sum <- n.run("sha256sum < /dev/vdb") }()
	n.eventually("a read that waits", func() bool { return n.cache.LazyPulls()[0].Disks["data.raw"].Readers > 0 })
	n.eventually("the wait in the report to the controller", func() bool {
		f := n.agent.diskFills(time.Now())[idA]
		return f.Waiting >= 1 && f.Fraction > 0 && f.Fraction < 1 && f.Bytes < f.Total
	})
	if err := syscall.Kill(state.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.eventually("the next process", func() bool {
		now := n.cache.LazyPulls()[0]
		return now.PID != state.PID && now.Phase == lazyfill.Serving
	})
	c.release()
	if got, want := <-sum, fmt.Sprintf("%x  -\n", sha256.Sum256(c.data)); got != want {
		t.Errorf("the guest read %s instead of %s", got, want)
	}
	n.eventually("the move to the files", func() bool { return len(n.cache.LazyPulls()) == 0 })
	if fills := n.agent.diskFills(time.Now()); len(fills) > 0 {
		t.Errorf("after all is here, the report has %+v", fills)
	}
	if !n.cache.Has(v.ContentID) {
		t.Error("the version is not in the cache")
	}
	left, err := filepath.Glob(filepath.Join(n.dir, "templates", "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != v.ContentID {
		t.Errorf("the cache has %v, %v", left, err)
	}
	if got := n.run("echo 3 > /proc/sys/vm/drop_caches; sha256sum < /dev/vdb"); !strings.HasPrefix(got,
		fmt.Sprintf("%x", sha256.Sum256(c.data))) {
		t.Errorf("from the file, the guest read %s", got)
	}
	n.save("1", "s1", "v3", v.ID)
	n.terminate("1")
}

// TestResumeBeforePullEnds: a guest is resumed from a saved state on a node that has nothing of its version, while the
// second disk is held: its memory is that of the save, and its disks have the bytes that were pushed.
func TestResumeBeforePullEnds(t *testing.T) {
	t.Parallel()
	disk := guesttest.Disk(t)
	guesttest.Turn(t, 1)
	c := newLazyRegistry(t, disk)
	a := bootLazy(t, "a", c)
	a.start("1", c.version.ID, "v1", c.version.ContentID)
	a.run("echo in memory >/dev/shm/kept; echo on disk >/var/kept; sync")
	a.eventually("the move to the files", func() bool { return len(a.cache.LazyPulls()) == 0 })
	v := a.save("1", "s1", "v3", c.version.ID)
	a.terminate("1")

	c.hold()
	b := bootLazy(t, "b", c)
	b.start("2", v.ID, "v3", v.ContentID)
	if b.cache.Has(v.ContentID) {
		t.Fatal("the version is complete")
	}
	if got := b.run("cat /dev/shm/kept /var/kept"); got != "in memory\non disk\n" {
		t.Errorf("the guest has %q", got)
	}
	c.release()
	sum := "echo 3 > /proc/sys/vm/drop_caches; sha256sum < /dev/vdb"
	want := fmt.Sprintf("%x  -\n", sha256.Sum256(c.data))
	if got := b.run(sum); got != want {
		t.Errorf("the guest read %s instead of %s", got, want)
	}
	b.eventually("the move to the files", func() bool { return len(b.cache.LazyPulls()) == 0 })
	if got := b.run(sum); got != want {
		t.Errorf("from the file, the guest read %s", got)
	}
	b.terminate("2")
}

// TestLazyPullEndsWithItsVM: what was pulled for a VM that ended is an interrupted pull, which the next start
// continues; a pull that cannot be completed ends the VM with its reason.
func TestLazyPullEndsWithItsVM(t *testing.T) {
	t.Parallel()
	disk := guesttest.Disk(t)
	guesttest.Turn(t, 1)
	c := newLazyRegistry(t, disk)
	c.hold()
	n := bootLazy(t, "lazy", c)
	v := c.version
	n.start("1", v.ID, "v1", v.ContentID)
	n.terminate("1")
	n.eventually("the end of the pull", func() bool { return len(n.cache.LazyPulls()) == 0 })
	n.eventually("an interrupted pull", func() bool {
		left, err := filepath.Glob(filepath.Join(n.dir, "templates", "*"))
		return err == nil && len(left) == 1 && strings.HasSuffix(left[0], ".partial")
	})
	c.answer(http.StatusGone) // once they are not held any more
	n.start("2", v.ID, "v1", v.ContentID)
	c.release()
	n.reaches("2", api.PhaseStopped)
	if s := n.control.status(idA); !strings.HasPrefix(s.Message, "The VM was ended: the rest of the template cannot") {
		t.Errorf("%+v", s)
	}
	n.terminate("2")
	n.eventually("the end of the pull", func() bool { return len(n.cache.LazyPulls()) == 0 })
}

// pulls is LazyTemplates whose lazy pulls are fixed.
type pulls struct {
	LazyTemplates
	list        []cache.LazyState
	isStartable func() bool
}

func (p pulls) IsStartable(string) bool { return p.isStartable() }

func (p pulls) LazyPulls() []cache.LazyState { return p.list }

// TestDiskFills: a VM whose process was started again while the registry is away is shown with what was there before,
// and its boot has more time.
func TestDiskFills(t *testing.T) {
	now := time.Now()
	state := lazyfill.State{
		Phase: lazyfill.Serving, VMs: map[string]lazyfill.VM{"a": {}, "b": {}}, Rate: 7,
		Disks: map[string]lazyfill.Disk{"x": {Bytes: 10, Total: 40}, "y": {Bytes: 20, Total: 20}},
		Waits: map[string]time.Time{"a": now.Add(-3 * time.Second)},
	}
	opening := state
	opening.Phase, opening.Waits, opening.Problem = lazyfill.Opening, nil, "away"
	opening.Waiting = now.Add(-9 * time.Second)
	unknown := opening
	unknown.Disks = nil
	some := api.DiskFill{Fraction: 0.5, Bytes: 30, Total: 60, Rate: 7}
	waits, away := some, some
	waits.Waiting, away.Waiting, away.Problem = 3, 9, "away"
	reading, anotherReads := state, state
	reading.Disks = map[string]lazyfill.Disk{"x": {Bytes: 30, Total: 60, Readers: 1}}
	anotherReads.Disks, anotherReads.Waits = reading.Disks, map[string]time.Time{"b": state.Waits["a"]}
	for name, c := range map[string]struct {
		state     lazyfill.State
		want      map[string]api.DiskFill
		isWaiting bool
	}{
		"serving": {state, map[string]api.DiskFill{"a": waits, "b": some}, false},
		"reads":   {reading, map[string]api.DiskFill{"a": waits, "b": some}, true},
		"another reads": {
			anotherReads, map[string]api.DiskFill{"a": some, "b": waits}, false,
		},
		"opening": {opening, map[string]api.DiskFill{"a": away, "b": away}, true},
		"unknown": {unknown, map[string]api.DiskFill{
			"a": {Rate: 7, Waiting: 9, Problem: "away"}, "b": {Rate: 7, Waiting: 9, Problem: "away"},
		}, true},
		"begun": {lazyfill.State{Phase: lazyfill.Opening}, map[string]api.DiskFill{}, true},
	} {
		pulled := cache.LazyState{State: c.state}
		a := &Agent{opts: Options{LazyTemplates: pulls{list: []cache.LazyState{pulled}}}}
		if d := cmp.Diff(c.want, a.diskFills(now)); d != "" || isWaiting(pulled, "a") != c.isWaiting {
			t.Errorf("%s: waits %t (-want +got):\n%s", name, isWaiting(pulled, "a"), d)
		}
	}
}

// TestLazyLoss: a pull that cannot continue ends its VMs with the class of what stopped it; while the registry is away,
// only a VM that waits is ended.
func TestLazyLoss(t *testing.T) {
	failed := func(class string) lazyfill.State {
		return lazyfill.State{Phase: lazyfill.Failed, Error: "why", Class: class}
	}
	for class, state := range map[farm.FailureClass]lazyfill.State{
		farm.FailureDisk: failed("disk"), farm.FailureTemplate: failed("template"), farm.FailureUnknown: failed(""),
		farm.FailureRegistry: {Phase: lazyfill.Serving, Problem: "why", Waits: map[string]time.Time{
			"a": time.Now().Add(-2 * maxRegistryWait),
		}},
		"": {
			Phase: lazyfill.Serving, Waiting: time.Now().Add(-2 * maxRegistryWait), Waits: map[string]time.Time{
				"a": time.Now().Add(-maxRegistryWait / 2), "b": time.Now().Add(-2 * maxRegistryWait),
			},
		},
	} {
		err := lazyLoss(cache.LazyState{State: state}, "a")
		if got := farm.FailureOf(err); got.Class != class || (err == nil) != (class == "") ||
			err != nil && (got.Step != farm.StepPull || !strings.Contains(err.Error(), "why")) {
			t.Errorf("%s: %v, %+v", class, err, got)
		}
	}
	for share, want := range map[time.Duration]bool{maxRegistryWait / 2: false, 2 * maxRegistryWait: true} {
		opening := lazyfill.State{Phase: lazyfill.Opening, Waiting: time.Now().Add(-share)} // was started again
		if err := lazyLoss(cache.LazyState{State: opening}, "a"); (err != nil) != want {
			t.Errorf("a process that opens its pull for %s: %v", share, err)
		}
	}
}

// TestAwaitFiles: a save waits as long as its VM reads from the process that pulls its version, or that is not known,
// since the agent was just started.
func TestAwaitFiles(t *testing.T) {
	in := &instance{id: idA, ending: t.Context(), order: api.Order{Start: &api.StartOrder{}}}
	for name, c := range map[string]struct {
		list  []cache.LazyState
		waits bool
	}{
		"no pull":      {nil, false},
		"not answered": {[]cache.LazyState{{}}, true},
		"reads": {
			[]cache.LazyState{{State: lazyfill.State{PID: 1, VMs: map[string]lazyfill.VM{idA: {}}}}}, true,
		},
		"moved": {[]cache.LazyState{{State: lazyfill.State{PID: 1}}}, false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		a := &Agent{opts: Options{LazyTemplates: pulls{list: c.list}}}
		if err := a.awaitFiles(ctx, in); errors.Is(err, context.Canceled) != c.waits || err != nil && !c.waits {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// stopped is a driver whose VMs are gone.
type stopped struct{ hv.Driver }

func (stopped) Stop(context.Context, string, hv.StopMode) error { return hv.ErrNotFound }

// closing is LazyTemplates that notes whose disks were closed.
type closing struct {
	LazyTemplates
	vms map[string]bool
}

func (c closing) ReleaseDisks(_ context.Context, _, vm string) error {
	c.vms[vm] = true
	return nil
}

// TestEndLazyVM: the end of a failed pull does not wait for VMs that are gone, such as those of failed starts, and a
// start that runs closes its disks itself.
func TestEndLazyVM(t *testing.T) {
	for _, c := range []struct {
		phase      api.Phase
		pull       lazyfill.Phase
		want, loss bool
	}{
		{api.PhaseRunning, lazyfill.Failed, true, true},
		{api.PhaseRunning, lazyfill.Serving, true, true},
		{api.PhaseFailed, lazyfill.Failed, true, false},
		{api.PhasePulling, lazyfill.Failed, true, false},
		{api.PhasePulling, lazyfill.Serving, false, false},
		{api.PhaseStarting, lazyfill.Failed, false, true},
		{"", lazyfill.Failed, true, false}, // no instance
	} {
		closed := closing{vms: map[string]bool{}}
		in := &instance{id: idA, state: journal.State{Phase: c.phase}}
		a := &Agent{opts: Options{LazyTemplates: closed, Driver: stopped{}}, instances: map[string]*instance{idA: in}}
		if c.phase == "" {
			delete(a.instances, idA)
		}
		state := cache.LazyState{State: lazyfill.State{Phase: c.pull}}
		if err := a.endLazyVM(t.Context(), state, idA, errors.New("lost")); err != nil {
			t.Fatal(err)
		}
		if closed.vms[idA] != c.want || (in.loss != nil) != c.loss {
			t.Errorf("%s, %s: closed %t, loss %v", c.phase, c.pull, closed.vms[idA], in.loss)
		}
	}
}

// TestAwaitDescription: a save that is ordered just after the start of the agent waits until the process of its version
// has answered, and ends with the reason when the pull has failed.
func TestAwaitDescription(t *testing.T) {
	in := newInstance(journal.Entry{Order: startOrder(nil)})
	state := cache.LazyState{ContentID: in.order.Start.ContentID}
	looks := 0
	starts := func() bool { looks++; return looks > 3 }
	a := &Agent{opts: Options{LazyTemplates: pulls{list: []cache.LazyState{state}, isStartable: starts}}}
	if err := a.awaitDescription(t.Context(), in); err != nil || looks != 4 {
		t.Errorf("%v after %d looks", err, looks)
	}
	a.opts.LazyTemplates = pulls{}
	if err := a.awaitDescription(t.Context(), in); err != nil {
		t.Errorf("without a lazy pull: %v", err)
	}
	state.State = lazyfill.State{Phase: lazyfill.Failed, Error: "the disk is broken"}
	never := func() bool { return false }
	a.opts.LazyTemplates = pulls{list: []cache.LazyState{state}, isStartable: never}
	if err := a.awaitDescription(t.Context(), in); err == nil || !strings.Contains(err.Error(), "the disk is broken") {
		t.Errorf("of a pull that has failed: %v", err)
	}
}
