package hostrest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/scan/host"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// quiet is a watcher of a host without changes.
type quiet struct{ root string }

func (q quiet) Run(ctx context.Context, _ func([]host.Change)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (q quiet) Mounts() []host.Mount {
	return []host.Mount{{Path: q.root, Type: "ext4", Method: "poll"}}
}
func (q quiet) Flush(context.Context) error { return nil }
func (q quiet) Close() error                { return nil }

// world is a scanner with some packages to find, and its API on a real port.
type world struct {
	t    *testing.T
	dir  string // that is scanned
	host *host.Host
	rest *Server
	url  string
	hold chan struct{} // while it blocks, the scanner waits in the event callback
	told chan struct{} // has one element when the scanner came there
}

func newWorld(t *testing.T, change func(*Options)) *world {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: filepath.Join(base, "tree"), hold: make(chan struct{}), told: make(chan struct{}, 1)}
	close(w.hold)
	w.npm("lodash", "4.17.11")
	w.npm("left-pad", "1.3.0")
	db := filepath.Join(base, "vuln.db")
	database(t, db)
	w.host, err = host.Open(host.Options{
		InventoryPath: filepath.Join(base, "state", "catalogue.db"), Database: host.Database{Path: db, Manual: true},
		OnChange: func(host.Event) {
			select {
			case w.told <- struct{}{}:
			default:
			}
			<-w.hold
		},
		NewWatcher: func(o host.WatchOptions) (host.Watcher, error) { return quiet{o.Root}, nil },
	})
	must(t, err)
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	w.url = "http://" + l.Addr().String()
	o := Options{
		Host: w.host, Version: "1.2.3", Access: Access{Listen: l.Addr().String()}, Log: slog.New(slog.DiscardHandler),
		NewMetricsHandler: obs.Metrics,
		Metrics: []metric.Family{
			metric.GaugeFamily("buildyard_test", "Nothing", func() float64 { return 4 }),
		},
	}
	if change != nil {
		change(&o)
	}
	w.rest, err = New(o)
	must(t, err)
	w.serve(l)
	return w
}

// serve runs scanner and API until the test ends.
func (w *world) serve(l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- w.host.Run(ctx) }()
	go func() { ended <- w.rest.Serve(ctx, l) }()
	w.t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				w.t.Error(err)
			}
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// npm installs a package.
func (w *world) npm(name, version string) {
	w.t.Helper()
	path := filepath.Join(w.dir, "node_modules", name, "package.json")
	must(w.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(w.t, os.WriteFile(path, fmt.Appendf(nil, `{"name":%q,"version":%q}`, name, version), 0o644))
}

// database writes a database that contains lodash below 4.17.12.
func database(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	d, err := vulndb.NewWriter(f, time.Unix(1.7e9, 0))
	must(t, err)
	must(t, d.Vulnerability(vulndb.Vulnerability{
		ID: "CVE-2019-10744", URL: "https://nvd.nist.gov/vuln/detail/CVE-2019-10744",
		Related: []string{"GHSA-jf85-cpcp-j695"},
		Score:   vulndb.Score{Base: 9.1, Severity: vulndb.Critical, Version: "3.1"},
	}))
	must(t, d.Advisory(vulndb.Advisory{
		ID: "GHSA-jf85-cpcp-j695", Source: vulndb.GHSA, CVEs: []string{"CVE-2019-10744"}, Ecosystem: vulndb.NPM,
		Name:   "lodash",
		Ranges: []vulndb.Range{{Fixed: "4.17.12"}},
	}))
	must(t, d.Close([]vulndb.SourceInfo{{Name: "test", Date: time.Unix(1.7e9, 0), Records: 1}}))
}

// answer is a response.
type reply struct {
	code   int
	header http.Header
	raw    string
	api.HostEnvelope
}

// do makes a request; a body that begins with { or is a form is sent. Headers are "Name: value".
func (w *world) do(method, target, body string, headers ...string) reply {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+target, strings.NewReader(body))
	must(w.t, err)
	if body != "" && body[0] != '{' {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	must(w.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	must(w.t, err)
	r := reply{code: resp.StatusCode, header: resp.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &r.HostEnvelope)
	return r
}

// body decodes the body of an answer that must be a success.
func body[T any](w *world, r reply) (out T) {
	w.t.Helper()
	if r.code != http.StatusOK || r.Status != api.StatusOK || r.Error != "" {
		w.t.Fatalf("%d %s", r.code, r.raw)
	}
	must(w.t, json.Unmarshal(r.Body, &out))
	return out
}

// state makes a request that must answer with a state.
func (w *world) state(method, target, want string) {
	w.t.Helper()
	if got := body[map[string]any](w, w.do(method, target, ""))["state"]; got != want {
		w.t.Errorf("%s %s: state %v, want %s", method, target, got, want)
	}
}

// scanned runs a full scan to its end.
func (w *world) scanned() {
	w.t.Helper()
	w.state("POST", "/v1/full-scan?path="+w.dir, "Running Full")
	must(w.t, w.host.Wait(w.t.Context()))
}
