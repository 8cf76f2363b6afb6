package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// databases are two from the shared data, and the listing from which services get them.
type databases struct {
	s            *stage
	older, newer string // files
	used         string // file of the service; it begins as the older
	www          string
	server       *httptest.Server
	published    time.Time // the last one

	mu     sync.Mutex // guards the field below
	events []api.HostEvent
}

// onlyNewer are the feeds that only the newer database has: those with the newest records,
// which date it.
var onlyNewer = []string{"rustsec", "nvd-overrides", "govulndb-osv"}

// databases builds both, and serves the older.
func (s *stage) databases(ctx context.Context) (*databases, error) {
	d := &databases{s: s, older: s.back("older.db"), newer: s.back("newer.db"), used: s.at("state",
		"vuln.db"), www: s.back("www")}
	feeds, err := filepath.Glob(filepath.Join(s.shared, "data", "vuln", "*.tar.zst"))
	if err != nil {
		return nil, err
	}
	if len(feeds) == 0 {
		return nil, fmt.Errorf("%s has no advisories", filepath.Join(s.shared, "data", "vuln"))
	}
	var some []string
	for _, f := range feeds {
		if !slices.Contains(onlyNewer, strings.TrimSuffix(filepath.Base(f), ".tar.zst")) {
			some = append(some, f)
		}
	}
	var both errgroup.Group
	both.Go(func() error { return d.build(ctx, d.older, some) })
	both.Go(func() error { return d.build(ctx, d.newer, feeds) })
	if err := both.Wait(); err != nil {
		return nil, err
	}
	if _, err := s.sh(ctx, "", "cp", d.older, d.used); err != nil {
		return nil, err
	}
	if err := d.publish(ctx, d.older); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /db/", http.StripPrefix("/db/", http.FileServer(http.Dir(d.www))))
	mux.HandleFunc("POST /hook", d.take)
	d.server = httptest.NewServer(mux)
	s.atEnd(func() error { d.server.Close(); return nil })
	return d, nil
}

func (d *databases) build(ctx context.Context, to string, feeds []string) error {
	args := append([]string{"db", "build", "--quiet", "--temp-dir", d.s.back(), "--db-path", to}, feeds...)
	_, err := rig.Output(ctx, d.s.dir, d.s.program("imagescan"), args...)
	return err
}

// publish makes services update to a database.
func (d *databases) publish(ctx context.Context, file string) error {
	if err := os.MkdirAll(d.www, 0o755); err != nil {
		return err
	}
	d.published = time.Now()
	_, err := rig.Output(ctx, d.s.dir, d.s.program("imagescan"), "db", "publish", d.www, "--db-path", file)
	return err
}

func (d *databases) listing() string { return d.server.URL + "/db/latest.json" }
func (d *databases) hook() string    { return d.server.URL + "/hook" }

// take records an event that the service posts.
func (d *databases) take(w http.ResponseWriter, req *http.Request) {
	var e api.HostEvent
	b, err := io.ReadAll(req.Body)
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

// reported reports whether an event of a cause contained a vulnerability.
func (d *databases) reported(cause string, b bad) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.events {
		for _, v := range e.Vulnerabilities {
			if e.Cause == cause && v.Vulnerability.ID == b.id && v.Package.Name == b.name {
				return true
			}
		}
	}
	return false
}

// update waits for the newer database, which has more advisories for existing packages.
func (a *useAct) update(ctx context.Context, r *row) error {
	at := a.dbs.published
	newest := func(st api.HostStatus) bool {
		return st.Database.Built != nil && st.Database.Compared != nil &&
			st.Database.Compared.Equal(*st.Database.Built) && !st.Analyzing && a.dbs.reported("database", later[0])
	}
	if err := a.v.until(ctx, 2*time.Minute, "the newer database is used", newest); err != nil {
		r.fail(err)
	}
	rep, err := a.v.whole(ctx)
	if err != nil {
		return err
	}
	findings(r, rep, later, a.s.host("bad"))
	for _, b := range later {
		v, _ := find(rep, b, b.at(a.s.host("bad", b.kind)))
		r.check(v.Known.After(at), "%s is said to be known since %s, before the newer database", b.id, v.Known)
		r.check(a.dbs.reported("database", b), "the webhook was not told of %s", b.id)
	}
	r.check(a.dbs.reported("real-time", installedBad[0]), "the webhook was not told what real time found")
	if _, err := a.v.command(ctx, r, 8, later[0].id, "report", "vulnerabilities", "--fail-on", "low", "-t",
		at.Format(time.RFC3339Nano)); err != nil {
		return err
	}
	var young []api.HostVulnerability
	if err := a.v.ask(ctx, "GET", "/v1/report/vulnerabilities", url.Values{"fromTime": {at.Format(time.RFC3339Nano)}},
		&young); err != nil {
		return err
	}
	_, old := find(api.HostReport{Vulnerabilities: young}, installedBad[0],
		installedBad[0].at(a.s.host("bad", installedBad[0].kind)))
	r.check(!old, "what was known before is said to be new")
	r.Says = fmt.Sprintf("in use %.0f s after it was published (looked for each minute)", time.Since(at).Seconds())
	return nil
}
