package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/internal/controller/groups"
	"github.com/buildyard/buildyard/internal/controller/reconcile"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// groupJudge reads every revision of the groups and checks the invariants.
type groupJudge struct {
	groups map[string]farm.Group
	nodes  map[string]farm.Node
	broken []string
}

// read reads all existing revisions.
func (j *groupJudge) read(t *testing.T, b *mem.Backend) {
	last, err := b.Barrier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = b.Watch(t.Context(), store.DefaultPrefix+"/v1/", 2, func(batch store.WatchBatch) error {
		was := maps.Clone(j.groups)
		for _, ev := range batch.Events {
			if id, ok := idOf(record.KindGroup, ev.Key); ok {
				keep(j.groups, id, ev)
			}
		}
		for _, ev := range batch.Events {
			if id, ok := idOf(record.KindNode, ev.Key); ok {
				before := j.nodes[id]
				j.member(batch.Rev, was, before, keep(j.nodes, id, ev))
			}
		}
		j.whole(batch.Rev)
		if batch.Rev >= last {
			return errRead
		}
		return nil
	})
}

// member checks the groups that a node was added to: they exist at that moment.
func (j *groupJudge) member(rev int64, was map[string]farm.Group, old, now farm.Node) {
	for _, g := range now.Groups {
		_, before := was[g]
		if _, there := j.groups[g]; !there && !before && !slices.Contains(old.Groups, g) {
			j.blame(rev, "node %s came into group %s, which is not there", now.ID, g)
		}
	}
}

// whole checks the groups together.
func (j *groupJudge) whole(rev int64) {
	names := map[string]bool{}
	for id, g := range j.groups {
		if names[g.Name] {
			j.blame(rev, "two groups are named %s", g.Name)
		}
		names[g.Name] = true
		steps := 0
		for next := g.Fallback; next != ""; next = j.groups[next].Fallback {
			if _, there := j.groups[next]; !there {
				j.blame(rev, "group %s falls back to %s, which is not there", id, next)
				break
			}
			if steps++; steps > len(j.groups) {
				j.blame(rev, "the fallbacks of group %s are a loop", id)
				break
			}
		}
	}
}

func (j *groupJudge) blame(rev int64, format string, args ...any) {
	j.broken = append(j.broken, fmt.Sprintf("revision %d: ", rev)+fmt.Sprintf(format, args...))
}

// groupDeeds are the random actions on groups, each through one replica.
var groupDeeds = map[string]func(*trial, *end, act){
	"make": func(r *trial, e *end, s act) {
		edit := groups.Edit{Name: new(fmt.Sprint("g", s.which)), Fallback: r.anyGroup(s.by)}
		r.async(s, func(ctx context.Context) { _, _ = e.Groups.Create(ctx, edit) })
	},
	"edit": func(r *trial, e *end, s act) {
		if id := r.anyGroup(s.which); id != nil {
			edit := groups.Edit{Fallback: r.anyGroup(s.which + s.by)}
			if s.by == 3 {
				edit.Name = new(fmt.Sprint("g", s.which))
			}
			r.async(s, func(ctx context.Context) { _ = e.Groups.Update(ctx, *id, edit) })
		}
	},
	"remove": func(r *trial, e *end, s act) {
		if id := r.anyGroup(s.which); id != nil {
			r.async(s, func(ctx context.Context) { _ = e.Groups.Delete(ctx, *id) })
		}
	},
	"put": func(r *trial, e *end, s act) {
		if id := r.anyGroup(s.which); id != nil && len(r.nodes) > 0 {
			node := r.nodes[s.by%len(r.nodes)].NodeID
			r.async(s, func(ctx context.Context) { _ = e.Groups.AddNode(ctx, node, []string{*id}) })
		}
	},
	"start": func(r *trial, e *end, s act) {
		if id := r.anyGroup(s.which); id != nil {
			r.async(s, func(ctx context.Context) {
				_, _ = e.Start(ctx, StartRequest{TemplateID: templateID, Count: 1 + s.by, GroupID: *id})
			})
		}
	},
	"join": (*trial).joins, "agents": (*trial).agents, "lose lease": deeds["lose lease"], "restart": deeds["restart"],
	"late commits": deeds["late commits"], "late watch": deeds["late watch"], "lost reply": deeds["lost reply"],
	"mend": deeds["mend"],
}

// anyGroup returns the i-th group that the first replica knows; nil when it knows none.
func (r *trial) anyGroup(i int) *string {
	groups := r.ends[0].Groups.List()
	if len(groups) == 0 {
		return nil
	}
	return &groups[i%len(groups)].ID
}

// TestGroupsStayWhole changes groups through two replicas concurrently, through lost leases, stuck
// and lost commits and restarts: at no revision is there a loop, a duplicate name, or a missing
// fallback, and in the end nothing is left of what was deleted.
func TestGroupsStayWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := actsOf(groupDeeds).Draw(rt, "steps")
		var broken []string
		synctest.Test(t, func(t *testing.T) { broken = tryGroups(t, steps) })
		if len(broken) > 0 {
			rt.Fatalf("%s", strings.Join(broken, "\n"))
		}
	})
}

func tryGroups(t *testing.T, steps []act) []string {
	r := &trial{pair: newPair(t)}
	defer r.stop()
	for _, s := range steps {
		groupDeeds[s.deed](r, r.ends[s.end], s)
		if s.wait {
			time.Sleep(10 * time.Millisecond) // for the barriers before changes of groups
		}
	}
	r.mend()
	r.running.Wait()
	time.Sleep(2*reconcile.SweepInterval + 2*record.BarrierTimeout)
	j := &groupJudge{groups: map[string]farm.Group{}, nodes: map[string]farm.Node{}}
	j.read(t, r.backend)
	for id, n := range j.nodes {
		for _, g := range n.Groups {
			if _, there := j.groups[g]; !there {
				j.blame(0, "node %s is still in group %s, which was deleted", id, g)
			}
		}
	}
	for id, i := range r.ends[0].tables.Instances.All() {
		if _, there := j.groups[i.GroupID]; !there && i.AwaitsPlacement() {
			j.blame(0, "instance %s still waits in group %s, which was deleted", id, i.GroupID)
		}
	}
	return j.broken
}

// TestGroupDeletedConcurrently: a replica that does not see yet that a group is deleted adds no node to
// it, and lets no group fall back to it.
func TestGroupDeletedConcurrently(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		here, there := p.ends[0], p.ends[1]
		node := p.join(here, "one", 1).NodeID
		g, err := here.Groups.Create(t.Context(), groups.Edit{Name: new("g")})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		there.faults.StallWatch()
		if err := here.Groups.Delete(t.Context(), g.ID); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"node put into it": there.Groups.AddNode(t.Context(), node, []string{g.ID}),
			"fallback to it":   there.Groups.Update(t.Context(), g.ID, groups.Edit{Name: new("h")}),
		} {
			if err == nil {
				t.Errorf("a group that is deleted: %s", what)
			}
		}
		there.faults.Mend()
		synctest.Wait()
		wantRefused(t, there.Groups.AddNode(t.Context(), node, []string{g.ID}), farm.CodeNotFound, "Not found")
		if v, err := there.Nodes.Get(t.Context(), node); err != nil || len(v.Node.Groups) != 0 {
			t.Errorf("node is in %v; %v", v.Node.Groups, err)
		}
	})
}

// TestTwoHalvesOfALoop: two replicas change groups at the same time, each validly; together the
// changes would form a loop.
func TestTwoHalvesOfALoop(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		here, there := p.ends[0], p.ends[1]
		var ids []string
		for _, name := range []string{"a", "b"} {
			g, err := here.Groups.Create(t.Context(), groups.Edit{Name: &name})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, g.ID)
		}
		synctest.Wait()
		there.faults.HoldCommits()
		late := make(chan error, 1)
		go func() { late <- there.Groups.Update(t.Context(), ids[1], groups.Edit{Fallback: &ids[0]}) }()
		for there.faults.Waiting() == 0 {
			time.Sleep(time.Millisecond)
		}
		if err := here.Groups.Update(t.Context(), ids[0], groups.Edit{Fallback: &ids[1]}); err != nil {
			t.Fatal(err)
		}
		there.faults.Mend()
		wantRefused(t, <-late, farm.CodeRefused, "cycle: b -> a -> b")
	})
}
