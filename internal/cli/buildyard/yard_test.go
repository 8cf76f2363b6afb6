package buildyard

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/fleet"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

// yard is a whole cloud in this process: a controller and a registry, and nodes whose VMs
// are simulated while they really pull. The nodes reach the registry over a line.
type yard struct {
	t        testing.TB
	dir      string
	settings map[string]string
	service  *ControllerService
	stop     func()
	line     *line
	api      apiClient
	registry *transfer.Client
}

func newYard(t testing.TB) *yard {
	t.Helper()
	y := &yard{t: t, dir: t.TempDir(), line: newLine(t), stop: func() {}}
	y.settings = map[string]string{
		"listen-addr": freeAddress(t), "registry-listen-address": freeAddress(t), "registry": y.line.URL,
	}
	y.up()
	t.Cleanup(func() { y.stop() })
	var err error
	if y.registry, err = transfer.New(transfer.Options{BaseURL: y.service.RegistryURL()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(y.registry.Close)
	return y
}

// freeAddress returns an address of this machine that no process uses now, so that a restarted
// service keeps its address.
func freeAddress(t testing.TB) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// up starts the service; after an end it continues with what it had.
func (y *yard) up() {
	y.t.Helper()
	y.service, y.stop = startController(y.t, y.dir, true, maps.Clone(y.settings))
	y.line.aim("http://" + y.settings["registry-listen-address"])
	y.api.base = y.service.URL()
}

// nodes joins nodes, or starts those of that name again, and returns the function that stops them.
func (y *yard) nodes(name string, count int, edits ...func(*fleet.Options)) (end func()) {
	y.t.Helper()
	o := fleet.Options{
		NodeCount: count, ControllerURL: y.service.URL(), JoinToken: y.service.JoinToken(), NamePrefix: name,
		Capacity:  10,
		RealPulls: true,
		DataDir:   filepath.Join(y.dir, "nodes"), Logger: slog.New(slog.DiscardHandler), Version: "test",
	}
	for _, edit := range edits {
		edit(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx, o) }()
	var once sync.Once
	end = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				y.t.Errorf("nodes: %v", err)
			}
		})
	}
	y.t.Cleanup(end)
	y.await(fmt.Sprintf("%d nodes called %s", count, name), func() bool {
		active := 0
		for _, n := range y.list() {
			if strings.HasPrefix(n.NodeName, name+"-") && n.State == "Active" {
				active++
			}
		}
		return active == count
	})
	return end
}

func (y *yard) list() (list []api.Node) {
	y.get("/api/v1/node", &list)
	return list
}

func (y *yard) get(path string, out any) {
	y.t.Helper()
	if err := y.api.get(y.t.Context(), path, out); err != nil {
		y.t.Fatalf("GET %s: %v", path, err)
	}
}

func (y *yard) await(what string, so func() bool) {
	y.t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if so() {
			return
		}
	}
	y.t.Fatalf("waited too long for %s", what)
}

// disk makes a file whose bytes cannot be compressed.
func (y *yard) disk(seed uint64, mib int) string {
	y.t.Helper()
	var key [32]byte
	key[0] = byte(seed)
	raw := make([]byte, mib<<20)
	_, _ = rand.NewChaCha8(key).Read(raw)
	path := filepath.Join(y.t.TempDir(), "disk.img")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		y.t.Fatal(err)
	}
	return path
}

// push publishes a disk as a version of a template, which is made when id is "".
func (y *yard) push(id, tag, disk string) api.PushResult {
	y.t.Helper()
	result, err := y.registry.Push(y.t.Context(), transfer.PushOptions{
		Request: api.PushRequest{
			ID: id, Name: "debian", Tag: tag, Arch: "amd64",
			Config: json.RawMessage(
				`{"ram":"1G","cpu":{"cores":1},"hard_drives":[{"file":"disk.img","format":"raw"}]}`),
		},
		Files: []transfer.PushFile{
			{Name: "disk.img", Disk: &diskfile.Disk{Path: disk, Format: "raw"}, Kind: api.FileDisk},
		},
	})
	if err != nil {
		y.t.Fatal(err)
	}
	return result
}

// start starts an instance of a version.
func (y *yard) start(template, tag string) string {
	y.t.Helper()
	var ids []string
	if err := y.api.send(y.t.Context(), "POST", "/api/v1/vm", map[string]any{"vmid": template, "tag": tag},
		&ids); err != nil {
		y.t.Fatal(err)
	}
	return ids[0]
}

func (y *yard) instance(id string) (inst api.Instance) {
	y.t.Helper()
	y.get("/api/v1/vm?id="+id, &inst)
	return inst
}

// distribute requests a distribution and returns its ID.
func (y *yard) distribute(body map[string]any) string {
	y.t.Helper()
	var answer api.DistributeAnswer
	if err := y.api.send(y.t.Context(), "POST", "/api/v1/registry/vm/distribute", body, &answer); err != nil {
		y.t.Fatal(err)
	}
	return answer.RequestID
}

func (y *yard) distribution(id string) (d api.Distribution) {
	y.t.Helper()
	y.get("/api/v1/registry/vm/distribute?id="+id, &d)
	return d
}

// line is a proxy between the nodes and the registry with a limited bandwidth.
type line struct {
	*httptest.Server
	to     atomic.Pointer[url.URL]
	rate   atomic.Int64 // bytes a second; 0: no limit
	passed atomic.Int64 // bytes of layers
	cut    atomic.Bool  // nothing passes

	mu   sync.Mutex
	free time.Time // when the next byte may pass
}

func newLine(t testing.TB) *line {
	l := &line{}
	p := &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(l.to.Load()) },
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), FlushInterval: -1,
	}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		if strings.HasPrefix(r.URL.Path, "/registry/v2/blob/") {
			w = slow{w, l}
		}
		p.ServeHTTP(w, r)
	}))
	l.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(l.Close)
	return l
}

func (l *line) aim(address string) {
	to, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	l.to.Store(to)
}

// wait waits until so many bytes may pass.
func (l *line) wait(bytes int) {
	rate := l.rate.Load()
	l.passed.Add(int64(bytes))
	if rate == 0 {
		return
	}
	l.mu.Lock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(int64(bytes) * int64(time.Second) / rate))
	until := l.free
	l.mu.Unlock()
	time.Sleep(time.Until(until))
}

type slow struct {
	http.ResponseWriter
	l *line
}

// Write hides the faster ways that the writer below has.
func (s slow) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		some := p[:min(len(p), 64<<10)]
		s.l.wait(len(some))
		if s.l.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		m, err := s.ResponseWriter.Write(some)
		if n += m; err != nil {
			return n, err
		}
		p = p[len(some):]
	}
	return n, nil
}

var _ io.Writer = slow{}
