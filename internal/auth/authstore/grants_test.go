package authstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/authtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

const registry = farm.ServiceRegistry

// setGroup sets the permissions of a group.
func setGroup(name string, list ...farm.Permission) func(auth.Grants) (auth.Grants, error) {
	return func(g auth.Grants) (auth.Grants, error) { return g.SetGroup(registry, name, list) }
}

// setResources sets rights of a group on n templates.
func setResources(name string, n int) func(auth.Grants) (auth.Grants, error) {
	return func(g auth.Grants) (auth.Grants, error) {
		return g.SetGroupResources(registry, name, authtest.Resources(n))
	}
}

// TestGrantsOfAllReplicas: a change counts on every replica, and none is lost.
func TestGrantsOfAllReplicas(t *testing.T) {
	onEach(t, func(t *testing.T, c *cluster) {
		a, b := c.open(t), c.open(t)
		judge := auth.NewAuthorizer(auth.Policy{Service: registry, Tier: farm.TierEnterprisePlus, Authorization: true},
			b.Grants(registry))
		who := auth.Identity{Name: "x", Groups: []string{"a"}, Method: auth.ByKey}
		must(t, a.Grants(registry).Change(t.Context(), setGroup("a", "pull_vm")))
		b.caughtUp(t)
		if !judge.Rules().Allows(who, "pull_vm") || judge.Rules().Allows(who, "index") {
			t.Error("the other replica does not know the group")
		}
		must(t, judge.StoreEnforcement(t.Context()))
		if !a.caughtUp(t).Grants(registry).Grants().Enforced {
			t.Error("that permissions count is not known")
		}
		if got := a.Grants(farm.ServiceController).Grants(); got.Enforced || len(got.Groups) > 0 {
			t.Errorf("the other service has %+v", got)
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				r := []*replica{a, b}[i%2]
				if err := r.Grants(registry).Change(t.Context(), setGroup(fmt.Sprint("g", i), "index")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, r := range []*replica{a.caughtUp(t), b.caughtUp(t)} {
			if got := r.Grants(registry).Grants(); len(got.Groups) != 21 || !got.Enforced {
				t.Errorf("%d groups, enforced %t", len(got.Groups), got.Enforced)
			}
		}
	})
}

// TestWrongGrantsAreNotStored: they would refuse the next start.
func TestWrongGrantsAreNotStored(t *testing.T) {
	c := newCluster(mem.New())
	r := c.open(t)
	for _, wrong := range []auth.Grants{
		{Groups: map[string][]farm.Permission{"a": {"start_vm"}}},
		{Groups: map[string][]farm.Permission{"root": nil}},
		{Resources: map[string][]farm.ResourcePermission{"a": {{ID: "", Type: farm.ResourceTemplate}}}},
	} {
		if err := r.Grants(registry).Change(t.Context(),
			func(auth.Grants) (auth.Grants, error) { return wrong, nil }); err == nil {
			t.Errorf("%+v is stored", wrong)
		}
	}
	c.open(t)
}

// parts counts the parts in a cluster.
func (c *cluster) parts(t *testing.T) (n int) {
	t.Helper()
	for key := range c.records(t) {
		if strings.HasPrefix(key, "p/registry/r/") {
			n++
		}
	}
	return n
}

// TestAllThatCanBeGranted fits, and opens again.
func TestAllThatCanBeGranted(t *testing.T) {
	fulltest.Only(t) // TestPartsGo and the limits in package auth are smaller
	c := newCluster(mem.New())
	g := c.open(t).Grants(registry)
	must(t, g.Change(t.Context(), setResources("1", auth.MaxGroupResources)))
	if n := c.parts(t); n < 10 {
		t.Errorf("%d parts", n)
	}
	must(t, g.Change(t.Context(), setResources("1", auth.MaxGroupResources))) // nothing changes
	few := func(n int, each int) func(auth.Grants) (auth.Grants, error) {
		return func(g auth.Grants) (auth.Grants, error) {
			var err error
			for range n {
				if g, err = g.SetGroup(registry, fmt.Sprint("group ", len(g.Groups)),
					[]farm.Permission{"index"}); err != nil {
					return g, err
				}
			}
			for i := range each {
				if g, err = g.SetGroupResources(registry, fmt.Sprint("of ", i), authtest.Resources(1)); err != nil {
					return g, err
				}
			}
			return g, nil
		}
	}
	for range 10 {
		must(t, g.Change(t.Context(), few(100, 0)))
	}
	if err := g.Change(t.Context(), few(1, 0)); farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("too many groups: %v", err)
	}
	if err := g.Change(t.Context(), few(0, 200)); farm.CodeOf(err) != farm.CodeRefused ||
		!strings.Contains(err.Error(), "make several") {
		t.Errorf("more at once than fits: %v", err)
	}
	for i := range 9 {
		must(t, g.Change(t.Context(), setResources(fmt.Sprint(i+2), auth.MaxGroupResources)))
	}
	if err := g.Change(t.Context(), setResources("x", 1)); farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("too many rights: %v", err)
	}
	again := c.open(t).Grants(registry).Grants()
	if len(again.Groups) != auth.MaxGrantGroups || len(again.Resources) != 10 ||
		len(again.Resources["10"]) != auth.MaxGroupResources {
		t.Errorf("%d groups, %d with rights", len(again.Groups), len(again.Resources))
	}
}

// TestPartsGo: nothing is left of a group that was large, nor of a change that did not come.
func TestPartsGo(t *testing.T) {
	onEach(t, func(t *testing.T, c *cluster) {
		r := c.open(t)
		g := r.Grants(registry)
		must(t, g.Change(t.Context(), setResources("a", 500)))
		n := c.parts(t)
		must(t, g.Change(t.Context(), setResources("a", 501)))
		if got := c.parts(t); n < 2 || got != n {
			t.Errorf("%d parts, then %d", n, got)
		}
		h := assembleGrants(g.table.Snapshot(), registry)
		next, err := setResources("b", 500)(h.grants)
		must(t, err)
		must(t, c.open(t).Grants(registry).Change(t.Context(), setGroup("c", "index")))
		if err := g.storeGrants(t.Context(), h, next); !errors.Is(err, store.ErrConflict) {
			t.Errorf("a change of what has changed since then: %v", err)
		}
		if got := c.parts(t); got != n {
			t.Errorf("%d parts after a change that lost", got)
		}
		_, _, err = g.loadGroup(t.Context(), next, "b") // and then its process is killed
		must(t, err)
		if removed, err := r.PruneExpired(t.Context(),
			time.Now().Add(unownedPartRetention-time.Minute)); removed != 0 || err != nil {
			t.Errorf("%d removed of a change that may still come: %v", removed, err)
		}
		removed, err := r.PruneExpired(t.Context(), time.Now().Add(unownedPartRetention+time.Minute))
		if got := c.parts(t); err != nil || removed != n || got != n {
			t.Errorf("%d removed, %d parts are left, want %d: %v", removed, got, n, err)
		}
		must(t, g.Change(t.Context(), func(g auth.Grants) (auth.Grants, error) { return g.DeleteGroup("a") }))
		if got := c.parts(t); got != 0 {
			t.Errorf("%d parts of nothing", got)
		}
	})
}

// TestPruneKeepsPartsInUse: a part that a slow change takes up at last stays, or the
// change begins again.
func TestPruneKeepsPartsInUse(t *testing.T) {
	c := newCluster(mem.New())
	a, b := c.open(t), c.open(t)
	g := a.Grants(registry)
	must(t, g.Change(t.Context(), setGroup("x", "index")))
	b.caughtUp(t)
	h := assembleGrants(g.table.Snapshot(), registry)
	next, err := setResources("b", 500)(h.grants)
	must(t, err)
	record, parts, err := g.loadGroup(t.Context(), next, "b")
	must(t, err)
	changes := append(g.groupChanges(h, "b", record),
		store.Put(g.table, "registry", newCachedRecord(grantRecord{Service: &serviceRecord{}}),
			store.IfRev(h.serviceRevision)))
	removed, err := b.caughtUp(t).PruneExpired(t.Context(), time.Now().Add(time.Hour))
	if err != nil || removed != len(parts) {
		t.Fatalf("%d removed, %v", removed, err)
	}
	if err := a.st.Commit(t.Context(), changes...); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a group without its parts: %v", err)
	}
}

// TestUnknownOutcomeKeepsParts: when it is unknown whether a change was stored, the parts that it
// needs stay.
func TestUnknownOutcomeKeepsParts(t *testing.T) {
	c, faults := faulty()
	r := c.open(t)
	g := r.Grants(registry)
	must(t, g.Change(t.Context(), setGroup("x", "index")))
	faults.Next(0, 0, loseReply) // two parts, then the change
	must(t, g.Change(t.Context(), setResources("b", 500)))
	if got := c.open(t).Grants(registry).Grants(); len(got.Resources["b"]) != 500 {
		t.Errorf("%d rights", len(got.Resources["b"]))
	}
	faults.Next(0, 0, refuse)
	err := g.Change(t.Context(), setResources("c", 500))
	if farm.CodeOf(err) != farm.CodeUnavailable || c.parts(t) != 2 {
		t.Errorf("%d parts, %v", c.parts(t), err)
	}
}

// TestChangeWaitsForOthers, but not indefinitely.
func TestChangeWaitsForOthers(t *testing.T) {
	r := newCluster(mem.New()).open(t)
	g := r.Grants(registry)
	g.changeSlot <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := g.Change(ctx, setGroup("a")); err == nil {
		t.Error("two change at a time")
	}
	<-g.changeSlot
	must(t, g.Change(t.Context(), setGroup("a")))
}
