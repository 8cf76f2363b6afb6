package lazyfill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/nbd"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
	"github.com/buildyard/buildyard/internal/transfer"
)

const processEnv = "TEST_FILL_PROCESS"

// TestMain: the test binary is also the process.
func TestMain(m *testing.M) {
	if os.Getenv(processEnv) != "" {
		err := Main(context.Background(), os.Args[1], slog.New(slog.NewTextHandler(os.Stderr, nil)))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	diskName = "disk.img"
	diskSize = 40 << 20
)

// cloud is a registry with a version that has one disk, and the order for it.
type cloud struct {
	url     string
	core    *registry.Registry
	disk    []byte
	order   Order
	program Program
	dir     string
	allowed atomic.Int64 // requests for frames that are answered
	secret  atomic.Pointer[string]
	otherID atomic.Bool // manifests have another content ID
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	core, err := registry.Open(t.Context(), registry.Options{Base: t.TempDir(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	c := &cloud{core: core, disk: make([]byte, diskSize)}
	c.allowed.Store(1 << 30)
	random := rand.NewChaCha8([32]byte{7})
	_, _ = random.Read(c.disk[1<<20 : 30<<20]) // the rest is holes
	h := rest.Handler(registryrest.Routes(core), slog.New(slog.DiscardHandler))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if want := c.secret.Load(); want != nil && r.Header.Get(authorization) != *want {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		for r.Header.Get("Range") != "" && c.allowed.Add(-1) < 0 {
			c.allowed.Add(1)
			select {
			case <-r.Context().Done():
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
		if c.otherID.Load() && r.Header.Get("Range") == "" {
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, r)
			other := strings.Repeat("0", len(c.order.ContentID))
			_, _ = w.Write(bytes.ReplaceAll(answer.Body.Bytes(), []byte(c.order.ContentID), []byte(other)))
			return
		}
		h.ServeHTTP(w, r)
	}))
	client, err := transfer.New(transfer.Options{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
		_ = core.Close()
	})
	path := filepath.Join(t.TempDir(), diskName)
	if err := os.WriteFile(path, c.disk, 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(api.TemplateConfig{
		RAM: "1G", HardDrives: []api.ConfigDrive{{File: diskName, Format: "raw"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := client.Push(t.Context(), transfer.PushOptions{
		Request: api.PushRequest{Name: "debian", Tag: "v1", Config: config},
		Files:   []transfer.PushFile{{Name: diskName, Path: path, Kind: api.FileDisk, Format: "raw"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := os.MkdirTemp("", "fill-") // short: an address of a socket has about 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.url, c.dir = server.URL, filepath.Join(t.TempDir(), "fill")
	c.program = Program{Path: self, Env: append(os.Environ(), processEnv+"=1")}
	c.order = Order{
		Registry: c.url, TemplateID: pushed.ID, ContentID: pushed.ContentID, Dir: t.TempDir(), SocketDir: sockets,
		SocketGroup: -1, MinBytes: 1,
	}
	return c
}

func (c *cloud) start(t *testing.T) *Handle {
	t.Helper()
	h, err := Start(t.Context(), c.dir, c.order, c.program)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(c.dir, logFile))
		t.Fatalf("%v\n%s", err, log)
	}
	t.Cleanup(func() { _ = h.End(context.WithoutCancel(t.Context())) })
	return h
}

// await waits until the process is in a state.
func (c *cloud) await(t *testing.T, h *Handle, what string, is func(State) bool) State {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s, err := h.State(t.Context())
		if err == nil && is(s) {
			return s
		}
		if time.Now().After(end) {
			log, _ := os.ReadFile(filepath.Join(c.dir, logFile))
			t.Fatalf("waited for %s: %+v, %v\n%s", what, s, err, log)
		}
	}
}

func isPhase(p Phase) func(State) bool { return func(s State) bool { return s.Phase == p } }

// vm is a qemu-img that reads a disk as QEMU does.
type vm struct {
	cmd  *exec.Cmd
	said bytes.Buffer
	out  string
}

// startVM starts to read a disk, and then writes the process file.
func startVM(t *testing.T, socket, processFile string) *vm {
	t.Helper()
	v := &vm{out: filepath.Join(t.TempDir(), "copy.img")}
	v.cmd = exec.CommandContext(t.Context(), "qemu-img", "convert", "--image-opts", "-O", "raw",
		"driver=nbd,server.type=unix,server.path="+socket+",reconnect-delay=60", v.out)
	v.cmd.Stderr = &v.said
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]int{"pid": v.cmd.Process.Pid})
	if err == nil {
		err = os.WriteFile(processFile, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// expect waits for the end, and compares what was read.
func (v *vm) expect(t *testing.T, want []byte) {
	t.Helper()
	if err := v.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, v.said.Bytes())
	}
	got, err := os.ReadFile(v.out)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the disk was read as %d other bytes, %v", len(got), err)
	}
}

// TestProcess: a client reads a disk while it is pulled, also when the process is killed and started again, and the
// files of an ordinary version remain.
func TestProcess(t *testing.T) {
	c := newCloud(t)
	c.allowed.Store(1)
	h := c.start(t)
	c.await(t, h, "the disks", isPhase(Serving))
	processFile := filepath.Join(t.TempDir(), "pid.json")
	sockets, err := h.Serve(t.Context(), "vm-1", processFile)
	if err != nil || sockets[diskName] == "" {
		t.Fatalf("sockets %v, %v", sockets, err)
	}
	reader := startVM(t, sockets[diskName], processFile)
	first := c.await(t, h, "a read", func(s State) bool {
		return s.Disks[diskName].Read > 0
	})
	if first.Phase != Serving {
		t.Errorf("before it was killed: %+v", first)
	}
	killed, err := os.FindProcess(first.PID)
	if err == nil {
		err = killed.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	for ; err == nil; _, err = h.State(t.Context()) {
	}
	c.allowed.Store(1 << 30)
	h = c.start(t)
	again, err := h.Serve(t.Context(), "vm-1", processFile)
	if err != nil || again[diskName] != sockets[diskName] {
		t.Errorf("sockets %v, %v; before %v", again, err, sockets)
	}
	reader.expect(t, c.disk)
	s := c.await(t, h, "the end", isPhase(Complete))
	if s.PID == first.PID || s.Files[diskName].ChainID == "" || s.Progress != 1 || s.Disks[diskName].Read == 0 {
		t.Errorf("at the end: %+v", s)
	}
	if got, err := os.ReadFile(filepath.Join(c.order.Dir, diskName)); err != nil || !bytes.Equal(got, c.disk) {
		t.Errorf("the file has %d other bytes, %v", len(got), err)
	}
	// All is here now, and the process ends before the VM was moved to the file. The next one needs no registry.
	if err := EndProcess(t.Context(), c.dir); err != nil {
		t.Fatal(err)
	}
	c.allowed.Store(0)
	h = c.start(t)
	if s := c.await(t, h, "the end", isPhase(Complete)); s.Files[diskName].ChainID == "" {
		t.Errorf("after a second start: %+v", s)
	}
	startVM(t, sockets[diskName], processFile).expect(t, c.disk)
	if err := h.Release(t.Context(), "vm-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(sockets[diskName]); !os.IsNotExist(err) {
		t.Errorf("the socket of a VM that was released: %v", err)
	}
}

// TestCompletedDisk: a disk that a VM reads is served also by a process that fetches all of it before VMs may start,
// since little is missing.
func TestCompletedDisk(t *testing.T) {
	c := newCloud(t)
	c.allowed.Store(1)
	h := c.start(t)
	c.await(t, h, "the disks", isPhase(Serving))
	processFile := filepath.Join(t.TempDir(), "pid.json")
	sockets, err := h.Serve(t.Context(), "vm-1", processFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := EndProcess(t.Context(), c.dir); err != nil {
		t.Fatal(err)
	}
	c.order.MinBytes = 2 * diskSize
	c.allowed.Store(1 << 30)
	c.start(t)
	startVM(t, sockets[diskName], processFile).expect(t, c.disk)
}

// TestToken: a request that the registry refuses waits for the next token.
func TestToken(t *testing.T) {
	c := newCloud(t)
	secret := "Bearer second"
	c.secret.Store(&secret)
	h := c.start(t)
	c.await(t, h, "a refusal", func(s State) bool { return s.Unauthorized && s.Phase == Opening })
	if _, err := h.Serve(t.Context(), "vm-1", "/nowhere"); err == nil {
		t.Error("a VM is served before there are disks")
	}
	if err := h.SetToken(t.Context(), "Bearer first"); err != nil {
		t.Fatal(err)
	}
	c.await(t, h, "the second refusal", func(s State) bool { return s.Unauthorized })
	if err := h.SetToken(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	c.await(t, h, "the end", isPhase(Complete))
	for _, vm := range []string{"a/b", "", "..", strings.Repeat("x", 200)} {
		if _, err := h.Serve(t.Context(), vm, "/nowhere"); err == nil {
			t.Errorf("a VM %q is served", vm)
		}
	}
}

// TestLostVersion: a version that the registry does not have is a failure.
func TestLostVersion(t *testing.T) {
	c := newCloud(t)
	c.order.ContentID = strings.Repeat("0", 64)
	s := c.await(t, c.start(t), "a failure", isPhase(Failed))
	if s.Error == "" {
		t.Errorf("%+v", s)
	}
}

// TestSameVM: requests for one VM that come at the same time get the same sockets, which the process notes.
func TestSameVM(t *testing.T) {
	p := &process{
		dir: t.TempDir(), token: newToken(), log: slog.New(slog.DiscardHandler), vms: map[string]*servedVM{},
		unused: make(chan struct{}), disks: map[string]nbd.Disk{diskName: nil},
	}
	sockets, err := os.MkdirTemp("", "fill-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(sockets)
	p.order.SocketDir, p.order.SocketGroup = sockets, -1
	var group errgroup.Group
	var answers [16]VM
	for i := range answers {
		group.Go(func() (err error) {
			answers[i], err = p.serveVM(t.Context(), "vm-1", "/nowhere")
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	served := map[string]VM{}
	if err := readJSON(filepath.Join(p.dir, servedFile), &served); err != nil {
		t.Fatal(err)
	}
	for _, vm := range answers {
		if vm.Sockets[diskName] != served["vm-1"].Sockets[diskName] {
			t.Errorf("%v, noted %v", vm.Sockets, served)
		}
	}
	if list, err := os.ReadDir(sockets); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	p.stop()
}

// TestSocketsOfAKilled: the sockets of a process that was killed are removed with it.
func TestSocketsOfAKilled(t *testing.T) {
	c := newCloud(t)
	c.allowed.Store(1)
	h := c.start(t)
	s := c.await(t, h, "the disks", isPhase(Serving))
	if _, err := h.Serve(t.Context(), "vm-1", "/nowhere"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := EndProcess(t.Context(), c.dir); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(c.order.SocketDir); err != nil || len(list) != 0 {
		t.Errorf("left are %v, %v", list, err)
	}
}

// TestKilledAtTheEnd: a process that follows one that was killed when all was here pulls nothing, and removes what the
// other one left.
func TestKilledAtTheEnd(t *testing.T) {
	c := newCloud(t)
	c.await(t, c.start(t), "the end", isPhase(Complete))
	if err := EndProcess(t.Context(), c.dir); err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(c.order.Dir, diskName+".journal")
	if err := os.WriteFile(journal, []byte("left"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.allowed.Store(0)
	c.await(t, c.start(t), "the end again", isPhase(Complete))
	if _, err := os.Stat(journal); !os.IsNotExist(err) {
		t.Error("the journal is left:", err)
	}
}

// TestOtherVersion: a process that follows a killed one serves nothing of another version.
func TestOtherVersion(t *testing.T) {
	c := newCloud(t)
	c.allowed.Store(1) // the index
	h := c.start(t)
	s := c.await(t, h, "the disk", isPhase(Serving))
	if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.otherID.Store(true)
	c.allowed.Store(1 << 30)
	if s = c.await(t, c.start(t), "a failure", isPhase(Failed)); !strings.Contains(s.Error, "instead of") {
		t.Errorf("%+v", s)
	}
}

// TestPeer: only the VM's process may read.
func TestPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	processFile := filepath.Join(t.TempDir(), "pid.json")
	for text, ok := range map[string]bool{
		"":           false,
		`{"pid": 1}`: false,
		fmt.Sprintf(`{"pid": %d, "start_ticks": 7}`, os.Getpid()): true,
	} {
		if err := os.WriteFile(processFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if err := checkPeer(ctx, conn, processFile); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
		cancel()
	}
}

// TestBootTime: what no VM reads is pulled once a VM has booted, has ended, or has had the time for it.
func TestBootTime(t *testing.T) {
	for name, end := range map[string]func(h *Handle) error{
		"booted": func(h *Handle) error { return h.MarkBooted(t.Context()) },
		"ended":  func(h *Handle) error { return h.Release(t.Context(), "vm-1") },
		"time":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t)
			c.order.BootTime = time.Hour
			if end == nil {
				c.order.BootTime = time.Millisecond
			}
			h := c.start(t)
			c.await(t, h, "the disks", isPhase(Serving))
			if _, err := h.Serve(t.Context(), "vm-1", filepath.Join(t.TempDir(), "pid.json")); err != nil {
				t.Fatal(err)
			}
			if end != nil {
				if s, err := h.State(t.Context()); err != nil || s.Phase != Serving {
					t.Errorf("before: %+v, %v", s, err)
				}
				if err := end(h); err != nil {
					t.Fatal(err)
				}
			}
			c.await(t, h, "the end", isPhase(Complete))
		})
	}
}

// TestTrace: what a VM read until all is here is sent to the registry, if it has booted by then.
func TestTrace(t *testing.T) {
	for _, hasBooted := range []bool{false, true} {
		c := newCloud(t)
		c.allowed.Store(1)
		h := c.start(t)
		c.await(t, h, "the disks", isPhase(Serving))
		processFile := filepath.Join(t.TempDir(), "pid.json")
		sockets, err := h.Serve(t.Context(), "vm-1", processFile)
		if err != nil {
			t.Fatal(err)
		}
		reader := startVM(t, sockets[diskName], processFile)
		c.await(t, h, "a read", func(s State) bool { return s.Disks[diskName].Read > 0 })
		if hasBooted {
			if err := errors.Join(h.MarkBooted(t.Context()), h.MarkBooted(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		c.allowed.Store(1 << 30)
		reader.expect(t, c.disk)
		c.await(t, h, "the end", isPhase(Complete))
		if err := EndProcess(t.Context(), c.dir); err != nil {
			t.Fatal(err)
		}
		if got := c.agreedTrace(t); (got > 0) != hasBooted {
			t.Errorf("booted %t: a trace of %d frames", hasBooted, got)
		}
	}
}

// agreedTrace sends the trace of another node, which names all frames, and returns how many of them were sent before.
func (c *cloud) agreedTrace(t *testing.T) int {
	t.Helper()
	ref := registry.VersionRef{ID: c.order.TemplateID, ContentID: c.order.ContentID}
	m, err := c.core.PeekManifest(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	all := api.FileTrace{Roots: []string{m.Files[0].Layers[0].Root}}
	for i := range 4096 {
		all.Frames = append(all.Frames, i)
	}
	err = c.core.AddBootTrace("other", api.BootTrace{
		ID: ref.ID, ContentID: ref.ContentID, Files: map[string]api.FileTrace{diskName: all},
	})
	if err != nil {
		t.Fatal(err)
	}
	if m, err = c.core.PeekManifest(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	return len(m.Files[0].Trace)
}
