package push

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric/metrictest"
	"github.com/buildyard/buildyard/internal/registry/files/filestest"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
	"github.com/buildyard/buildyard/internal/scan/host"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// yard is a controller with one node.
type yard struct {
	*controller.Controller
	url  string
	node api.JoinAnswer
	away atomic.Bool // it answers 503
}

func newYard(t *testing.T) *yard {
	t.Helper()
	shelf := filestest.Open(t)
	tables := record.NewTables(controllerrest.InstanceJSON)
	st, err := store.Open(t.Context(), mem.New(), store.Options{Tables: tables.All()})
	must(t, err)
	y := &yard{}
	log := slog.New(slog.DiscardHandler)
	y.Controller, err = controller.New(t.Context(), st, tables, controller.Options{Files: shelf, Logger: log})
	must(t, err)
	routes := controllerrest.Handler(
		controllerrest.Options{Controller: y.Controller, RequestTimeout: time.Minute, Logger: log})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if y.away.Load() {
			http.Error(w, "no", http.StatusServiceUnavailable)
			return
		}
		routes.ServeHTTP(w, r)
	}))
	y.url = server.URL
	t.Cleanup(func() {
		server.Close()
		must(t, st.Close())
	})
	y.node, err = y.Nodes.Join(t.Context(),
		api.JoinRequest{
			Protocol: api.LinkProtocol, Token: y.Nodes.JoinToken(), Name: "n", Host: "10.0.0.1",
			Arch: "amd64",
		})
	must(t, err)
	return y
}

func (y *yard) to() (Target, error) {
	return Target{
		URL: y.url + api.PathScan, Node: y.node.NodeID, Method: http.MethodPost,
		Client: &http.Client{Transport: &http.Transport{}}, Authorize: func(r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+y.node.Credential)
			return nil
		},
	}, nil
}

// kept returns the controller's stored report of the node.
func (y *yard) kept(t *testing.T) (out api.NodeScan) {
	t.Helper()
	resp, err := http.Get(y.url + "/api/v1/node/scan?id=" + y.node.NodeID)
	must(t, err)
	defer resp.Body.Close()
	var e api.Envelope[api.NodeScan]
	must(t, json.NewDecoder(resp.Body).Decode(&e))
	return e.Body
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// quiet is a watcher of a host without changes.
type quiet struct{}

func (quiet) Run(ctx context.Context, _ func([]host.Change)) error {
	<-ctx.Done()
	return ctx.Err()
}
func (quiet) Flush(context.Context) error { return nil }

func (quiet) Mounts() []host.Mount { return nil }

func (quiet) Close() error { return nil }

// npm puts a package into a directory.
func npm(t *testing.T, dir, name, version string) {
	t.Helper()
	at := filepath.Join(dir, "node_modules", name)
	must(t, os.MkdirAll(at, 0o755))
	must(t, os.WriteFile(filepath.Join(at, "package.json"), fmt.Appendf(nil, `{"name":%q,"version":%q}`, name, version),
		0o600))
}

// sending runs a scanner of a directory whose findings are sent to a yard.
func sending(t *testing.T, y *yard) (*host.Host, *Sender) {
	t.Helper()
	s := New(Options{
		HostName: "build-7", Version: "1", Target: y.to, Log: slog.New(slog.DiscardHandler),
		settleTime: time.Millisecond, retryDelay: 10 * time.Millisecond,
	})
	h, err := host.Open(host.Options{
		InventoryPath: filepath.Join(t.TempDir(), "catalogue.db"), OnChange: s.Notify, OnEnd: s.NotifyEnd,
		NewWatcher: func(host.WatchOptions) (host.Watcher, error) { return quiet{}, nil },
	})
	must(t, err)
	s.SetHost(h)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	ran := make(chan error, 1)
	go func() { ran <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		must(t, <-ran)
		_ = h.Close()
	})
	return h, s
}

func scan(t *testing.T, h *host.Host, dir string) {
	t.Helper()
	_, err := h.FullScan(host.FullScanOptions{Path: dir})
	must(t, err)
	must(t, h.Wait(t.Context()))
}

// until waits for an asynchronous effect of the sender.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in 30 s", what)
		}
	}
}

// TestFindingsAreSent: after each full scan, also one without news, with the whole inventory; and again until
// an unavailable controller has accepted them.
func TestFindingsAreSent(t *testing.T) {
	y, dir := newYard(t), t.TempDir()
	dir, err := filepath.EvalSymlinks(dir)
	must(t, err)
	npm(t, dir, "lodash", "4.17.11")
	h, s := sending(t, y)
	scan(t, h, dir)
	until(t, "the first scan", func() bool { return y.kept(t).Counts.Packages == 1 && !y.kept(t).LastScan.IsZero() })
	got := y.kept(t)
	if got.Host != "build-7" || got.Scanner != "hostscan" || len(got.Packages) != 1 ||
		got.Packages[0].Name != "lodash" || got.Vulnerabilities == nil {
		t.Errorf("%+v", got)
	}
	y.away.Store(true)
	npm(t, dir, "left-pad", "1.3.0")
	scan(t, h, dir)
	until(t, "a failure", func() bool { return s.Status().Error != "" })
	if st := s.Status(); st.Sent == nil || st.Node != y.node.NodeID || st.URL != y.url+api.PathScan {
		t.Errorf("%+v", st)
	}
	y.away.Store(false)
	until(t, "what failed before", func() bool { return y.kept(t).Counts.Packages == 2 })
	at := y.kept(t).LastScan
	scan(t, h, dir)
	until(t, "a scan without news", func() bool { return y.kept(t).LastScan.After(at) })
	until(t, "the end", func() bool { return s.Status().Error == "" })
	m := metrictest.Values(s.Families())
	if m["buildyard_hostscan_pushes_total{failed}"] < 1 || m["buildyard_hostscan_pushes_total{ok}"] < 3 ||
		m["buildyard_hostscan_last_push_timestamp_seconds"] == 0 {
		t.Errorf("%v", m)
	}
}

// TestWhatIsRefused: findings that look older than those of a fast clock are sent again until they are
// accepted, and the status contains the reason of the refusals.
func TestWhatIsRefused(t *testing.T) {
	y, dir := newYard(t), t.TempDir()
	npm(t, dir, "lodash", "4.17.11")
	h, s := sending(t, y)
	must(t, y.Scans.Put(t.Context(), api.NodeScanSummary{
		NodeID: y.node.NodeID, Host: "x", Scanner: "x", Version: "1", Scanned: time.Now().Add(2 * time.Second),
	}, nil, nil))
	scan(t, h, dir)
	until(t, "a refusal", func() bool { return s.Status().Error != "" })
	until(t, "what was refused", func() bool { return s.Status().Sent != nil && y.kept(t).Host == "build-7" })
	if farm.CodeOf(y.Nodes.Delete(t.Context(), y.node.NodeID)) != "" {
		t.Error("the node stays")
	}
	s.wakeUp()
	until(t, "an unknown node",
		func() bool {
			return s.Status().Error == "the controller does not accept the node credential or API key"
		})
}

// TestWhatDoesNotFit is counted, and the body stays within the limit.
func TestWhatDoesNotFit(t *testing.T) {
	var out bytes.Buffer
	b := &bodyWriter{ctx: t.Context(), w: &out, bytesLeft: 1000}
	first, fit := true, 0
	for i := range 100 {
		if b.writeItem(&first, fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i)}))) {
			fit++
		}
	}
	if out.Len() > 1000 || fit != 1000/67 || b.err != nil {
		t.Errorf("%d bytes, %d items, %v", out.Len(), fit, b.err)
	}
}
