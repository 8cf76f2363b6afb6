package nodelink

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// TestRemovedNodesHaveNoSessions: events that arrive after the removal of their node bring no session
// of it back.
func TestRemovedNodesHaveNoSessions(t *testing.T) {
	withLink(t, func(t *testing.T, l *testLink) {
		node := l.addNode()
		inst := &farm.Instance{ID: "i", NodeID: node, State: farm.Scheduling}
		placed := store.Event{Kind: record.KindInstance, ID: "i", New: inst}
		l.Sessions.Observe([]store.Event{placed})
		if n := len(l.Sessions.all()); n != 1 {
			t.Fatalf("%d sessions of one node", n)
		}
		l.commit(store.Delete(l.db.Tables.Nodes, node, store.Any))
		ending := &farm.Instance{ID: "i", NodeID: node, State: farm.Terminating}
		l.Sessions.Observe([]store.Event{
			placed,
			{Kind: record.KindInstance, ID: "i", Old: inst},
			{Kind: record.KindInstance, ID: "i", New: ending},
		})
		if n := len(l.Sessions.all()); n != 0 {
			t.Errorf("%d sessions of removed nodes", n)
		}
	})
}

// TestInventedCacheJobsAreBounded: a node that reports cache jobs that do not exist makes its session
// keep a bounded number of them.
func TestInventedCacheJobsAreBounded(t *testing.T) {
	withLink(t, func(t *testing.T, l *testLink) {
		s := l.Sessions.session(l.addNode())
		for i := range 2 * maxCacheJobs {
			s.dropCacheJob(fmt.Sprint("job-", i), true)
		}
		if n := len(s.cacheJobs); n != maxCacheJobs {
			t.Errorf("%d cache jobs are kept", n)
		}
	})
}

// TestVanishFailuresAreLoggedTogether: instances whose end cannot be written are logged in one line
// with their number, not one line each at every poll.
func TestVanishFailuresAreLoggedTogether(t *testing.T) {
	withLink(t, func(t *testing.T, l *testLink) {
		node := l.addNode()
		for i := range 5 {
			id := fmt.Sprint("i", i)
			inst := &farm.Instance{ID: id, NodeID: node, State: farm.Started, StatusNumber: 1}
			l.commit(store.Put(l.db.Tables.Instances, id, inst, store.Any))
		}
		l.instances.change, l.instances.err = record.Transition, errors.New("store is full")
		for range 3 {
			l.applyInventory(t.Context(), l.Sessions.session(node), nil)
		}
		if n := strings.Count(l.log.String(), "ending instances whose VMs no longer exist"); n != 1 ||
			!strings.Contains(l.log.String(), "count=5 ") {
			t.Errorf("%d lines: %s", n, l.log.String())
		}
	})
}

// TestFailedStatusesAreKept: delayed statuses that could not be written are written later.
func TestFailedStatusesAreKept(t *testing.T) {
	withLink(t, func(t *testing.T, l *testLink) {
		s := l.Sessions.session(l.addNode())
		l.instances.change = record.Description
		late := api.InstanceStatus{InstanceID: "i", No: 7}
		l.restoreStatuses(t.Context(), s, []api.InstanceStatus{late})
		time.Sleep(2 * writeInterval)
		synctest.Wait()
		if got := l.instances.written; len(got) != 1 || got[0].No != late.No {
			t.Errorf("written: %+v", got)
		}
	})
}
