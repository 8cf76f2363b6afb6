package controller

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry/files/filestest"
)

// names returns the names of the existing files.
func names(s *filestest.Server) string {
	list, _ := filepath.Glob(filepath.Join(s.Dir, "node-scans/*/*"))
	for i := range list {
		list[i] = filepath.Base(list[i])
	}
	return strings.Join(list, " ")
}

func scanOf(node string, at time.Time, high int) api.NodeScanSummary {
	return api.NodeScanSummary{
		NodeID: node, Host: "build-7", Scanner: "hostscan", Version: "1", Scanned: at,
		Counts: api.NodeScanCounts{ScanCounts: api.ScanCounts{High: high, Packages: 5}},
	}
}

// TestScansOfNodes: the last results are kept, through restarts too, and are removed with their
// node.
func TestScansOfNodes(t *testing.T) {
	shelf := filestest.Open(t)
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		options := Options{Files: shelf, Events: events.Options{Machine: "host", Push: to}}
		c.stop()
		c.start(options)
		a, other := c.join("n", 2), c.join("m", 2)
		ctx, now := t.Context(), time.Now()
		to.clear()
		if _, _, err := c.Scans.Get(ctx, a.id); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("before any: %v", err)
		}
		for i, content := range []string{"first", "second", "third"} {
			summary := scanOf(a.id, now.Add(time.Duration(i)*time.Second), min(i, 1))
			fine(t, c.Scans.Put(ctx, summary, []byte(content), nil))
			s, raw, err := c.Scans.Get(ctx, a.id)
			if err != nil || string(raw) != content || s.Counts.High != min(i, 1) || s.Received.IsZero() {
				t.Errorf("%s: %q %+v %v", content, raw, s, err)
			}
		}
		wantLines(t, to, "NodeScanned", "NodeScanned") // the third has the same numbers
		if err := c.Scans.Put(ctx, scanOf(a.id, now, 9), []byte("late"), nil); farm.CodeOf(err) != farm.CodeConflict {
			t.Errorf("older ones: %v", err)
		}
		c.stop()
		c.start(options)
		if s, raw, err := c.Scans.Get(ctx, a.id); err != nil || string(raw) != "third" || s.Host != "build-7" {
			t.Errorf("after a restart: %q %v", raw, err)
		}
		if list := c.Scans.List(); len(list) != 1 || list[0].NodeID != a.id {
			t.Errorf("%+v", list)
		}
		fine(t, c.Nodes.Delete(ctx, a.id))
		if _, _, err := c.Scans.Get(ctx, a.id); farm.CodeOf(err) != farm.CodeNotFound || len(c.Scans.List()) != 0 {
			t.Errorf("of a removed node: %v", err)
		}
		shelf.Away.Store(true) // the registry is unreachable for a while
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if names(shelf) != "a.json.gz b.json.gz" || c.tables.Scans.Len() != 1 {
			t.Errorf("while the registry is away: %q, %d records", names(shelf), c.tables.Scans.Len())
		}
		if err := c.Scans.Put(ctx, scanOf(other.id, now, 0), nil, nil); err == nil || c.tables.Scans.Len() != 1 {
			t.Errorf("results that could not be kept count: %v", err)
		}
		shelf.Away.Store(false)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if names(shelf) != "" || c.tables.Scans.Len() != 0 {
			t.Errorf("left: %q, %d records", names(shelf), c.tables.Scans.Len())
		}
	})
}
