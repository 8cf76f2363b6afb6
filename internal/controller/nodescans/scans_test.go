package nodescans

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry/files/filestest"
	"github.com/buildyard/buildyard/internal/store"
)

func scanOf(node string, at time.Time) api.NodeScanSummary {
	return api.NodeScanSummary{
		NodeID: node, Host: "build-7", Scanner: "hostscan", Version: "1", Scanned: at,
		Counts: api.NodeScanCounts{ScanCounts: api.ScanCounts{Packages: 5}},
	}
}

// open returns the results with a node, without and with a file server.
func open(t *testing.T) (none, s *Scans, files *filestest.Server, node string) {
	db := recordtest.Open(t)
	node = uuid.NewString()
	recordtest.Commit(t, db, store.Put(db.Tables.Nodes, node, &farm.Node{ID: node}, store.Any))
	files = filestest.Open(t)
	options := Options{WithEvent: func(w store.Writer, _ func() farm.Event) store.Writer { return w }}
	none = New(db, options)
	options.Files = files
	return none, New(db, options), files, node
}

// TestInvalidSummaries: values that no scanner sends are refused with the field's name.
func TestInvalidSummaries(t *testing.T) {
	_, s, _, node := open(t)
	for field, change := range map[string]func(*api.NodeScanSummary){
		"host":            func(s *api.NodeScanSummary) { s.Host = "" },
		"scanner":         func(s *api.NodeScanSummary) { s.Scanner = "a\nb" },
		"version":         func(s *api.NodeScanSummary) { s.Version = strings.Repeat("1", 256) },
		"scanned":         func(s *api.NodeScanSummary) { s.Scanned = time.Time{} },
		"scanned: ":       func(s *api.NodeScanSummary) { s.Scanned = time.Now().Add(time.Hour) },
		"counts.high":     func(s *api.NodeScanSummary) { s.Counts.High = -1 },
		"counts.packages": func(s *api.NodeScanSummary) { s.Counts.Packages = 1 << 40 },
	} {
		summary := scanOf(node, time.Now())
		change(&summary)
		if err := s.Put(t.Context(), summary, nil, nil); farm.CodeOf(err) != farm.CodeInvalid ||
			!strings.HasPrefix(err.Error(), strings.TrimSuffix(field, ": ")) {
			t.Errorf("%s: %v", field, err)
		}
	}
	unknown := scanOf("11111111-2222-4333-8444-555555555555", time.Now())
	if err := s.Put(t.Context(), unknown, nil, nil); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("of an unknown node: %v", err)
	}
}

// TestWithoutFileServer: nothing is stored, and nothing is found.
func TestWithoutFileServer(t *testing.T) {
	none, _, _, node := open(t)
	if err := none.Put(t.Context(), scanOf(node, time.Now()), nil, nil); farm.CodeOf(err) != farm.CodeUnavailable {
		t.Errorf("put: %v", err)
	}
	if _, _, err := none.Get(t.Context(), node); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("get: %v", err)
	}
}

// TestChangedFile: a file that has changed since its upload is not returned, until the next results
// replace it.
func TestChangedFile(t *testing.T) {
	_, s, files, node := open(t)
	ctx := t.Context()
	put := func(content string) {
		t.Helper()
		if err := s.Put(ctx, scanOf(node, time.Now()), []byte(content), nil); err != nil {
			t.Fatal(err)
		}
	}
	put("true")
	if err := files.UploadFile(ctx, fileName(node, firstPlace), []byte("made up")); err != nil {
		t.Fatal(err)
	}
	if _, raw, err := s.Get(ctx, node); farm.CodeOf(err) != farm.CodeUnavailable {
		t.Errorf("another file: %q %v", raw, err)
	}
	put("new")
	if _, raw, err := s.Get(ctx, node); string(raw) != "new" {
		t.Errorf("the next ones: %q %v", raw, err)
	}
}

// TestPruneOfRemovedNodes: the results of a removed node are removed with their files.
func TestPruneOfRemovedNodes(t *testing.T) {
	_, s, files, node := open(t)
	ctx := t.Context()
	if err := s.Put(ctx, scanOf(node, time.Now()), []byte("content"), nil); err != nil {
		t.Fatal(err)
	}
	prune := func() {
		t.Helper()
		if err := s.Prune(ctx, recordtest.Term(s.db), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	prune()
	if list := s.List(); len(list) != 1 || list[0].NodeID != node {
		t.Errorf("%+v", list)
	}
	recordtest.Commit(t, s.db, store.Delete(s.db.Tables.Nodes, node, store.Any))
	prune()
	if _, err := files.DownloadFile(ctx, fileName(node, firstPlace), 100); farm.CodeOf(err) != farm.CodeNotFound ||
		s.db.Tables.Scans.Len() != 0 {
		t.Errorf("%d records, %v", s.db.Tables.Scans.Len(), err)
	}
}

// TestFoundEvent: vulnerabilities that were not found on a node before make an event, even when their numbers are
// those of before.
func TestFoundEvent(t *testing.T) {
	_, s, _, node := open(t)
	var events []string
	s.opts.WithEvent = func(w store.Writer, event func() farm.Event) store.Writer {
		e := event()
		events = append(events, fmt.Sprintln(e.Name, e.Extra["node_id"] == node, e.Extra["vulnerabilities"]))
		return w
	}
	for _, ids := range [][]string{{"CVE-1"}, {"CVE-1"}, {"CVE-2"}} {
		var found []api.FoundVulnerability
		for _, id := range ids {
			found = append(found, api.FoundVulnerability{ID: id})
		}
		if err := s.Put(t.Context(), scanOf(node, time.Now()), []byte("content"), found); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"VulnerabilityFound true [CVE-1]\n", "NodeScanned true <nil>\n", "VulnerabilityFound true [CVE-2]\n",
	}
	if !slices.Equal(events, want) {
		t.Errorf("%q, want %q", events, want)
	}
}
