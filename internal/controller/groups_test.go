package controller

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/groups"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/controller/reconcile"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// mustGroup creates a group that falls back to another one, nil for none.
func (c *cloud) mustGroup(name string, fallback *farm.Group) *farm.Group {
	c.t.Helper()
	edit := groups.Edit{Name: &name}
	if fallback != nil {
		edit.Fallback = &fallback.ID
	}
	g, err := c.Groups.Create(c.t.Context(), edit)
	if err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
	return g
}

// joinIn adds a node to groups.
func (c *cloud) joinIn(name string, capacity int, groups ...*farm.Group) *agent {
	c.t.Helper()
	a := c.join(name, capacity)
	for _, g := range groups {
		if err := c.Groups.AddNode(c.t.Context(), a.id, []string{g.ID}); err != nil {
			c.t.Fatal(err)
		}
	}
	synctest.Wait()
	return a
}

// wantRefused checks that an error is a refusal, or has another code, and has a text.
func wantRefused(t *testing.T, err error, code farm.Code, text string) {
	t.Helper()
	if farm.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("error = %v (%s), want %s with %q", err, farm.CodeOf(err), code, text)
	}
}

// wantOn checks on which node an instance is; nil for none.
func (c *cloud) wantOn(id string, a *agent) {
	c.t.Helper()
	synctest.Wait()
	inst, err := c.Instances.Get(c.t.Context(), id)
	want := ""
	if a != nil {
		want = a.id
	}
	if err != nil || inst.NodeID != want {
		c.t.Errorf("instance is on %q (%s %q), want %q; %v", inst.NodeID, inst.State, inst.Message, want, err)
	}
}

func TestGroupEdits(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		ctx := t.Context()
		a := c.mustGroup("a", nil)
		b := c.mustGroup("b", a)
		third := c.mustGroup("c", b)
		text := func(s string) *string { return &s }
		for _, tc := range []struct {
			id   string
			edit groups.Edit
			code farm.Code
			text string
		}{
			{a.ID, groups.Edit{Fallback: &a.ID}, farm.CodeRefused, "cycle: a -> a"},
			{a.ID, groups.Edit{Fallback: &b.ID}, farm.CodeRefused, "cycle: a -> b -> a"},
			{a.ID, groups.Edit{Name: text("z"), Fallback: &third.ID}, farm.CodeRefused, "cycle: z -> c -> b -> z"},
			{a.ID, groups.Edit{Name: text("b")}, farm.CodeRefused, `"b" already exists`},
			{a.ID, groups.Edit{Name: &b.ID}, farm.CodeInvalid, "name: must not have the form"},
			{a.ID, groups.Edit{Fallback: text("b")}, farm.CodeNotFound, "Not found"},
			{a.ID, groups.Edit{Fallback: text(templateID)}, farm.CodeNotFound, "Not found"},
			{"nowhere", groups.Edit{}, farm.CodeNotFound, "Not found"},
		} {
			wantRefused(t, c.Groups.Update(ctx, tc.id, tc.edit), tc.code, tc.text)
		}
		if _, err := c.Groups.Create(ctx, groups.Edit{Name: text("b")}); err == nil {
			t.Error("two groups have one name")
		}
		c.mustGroup("B", nil) // another name
		if err := c.Groups.Update(ctx, third.ID,
			groups.Edit{Name: text("x"), Description: text("why"), Fallback: text("")}); err != nil {
			t.Fatal(err)
		}
		got, _, _ := c.tables.Groups.Get(third.ID)
		if *got != (farm.Group{ID: third.ID, Name: "x", Description: "why"}) {
			t.Errorf("group = %+v", got)
		}
		_, rev, _ := c.tables.Groups.Get(third.ID)
		if err := c.Groups.Update(ctx, third.ID, groups.Edit{Name: text("x")}); err != nil {
			t.Fatal(err)
		}
		if _, again, _ := c.tables.Groups.Get(third.ID); again != rev {
			t.Error("an edit that changes nothing was written")
		}
	})
}

func TestLongLoopIsShortened(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		first := c.mustGroup("g0", nil)
		last := first
		for i := range 40 {
			last = c.mustGroup(fmt.Sprint("g", i+1), last)
		}
		err := c.Groups.Update(t.Context(), first.ID, groups.Edit{Fallback: &last.ID})
		wantRefused(t, err, farm.CodeRefused,
			"cycle: g0 -> g40 -> g39 -> g38 -> g37 -> g36 -> (30 more) -> g5 -> g4 -> g3 -> g2 -> g1 -> g0")
	})
}

func TestGroupsAreBounded(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		for i := range groups.Max {
			c.mustGroup(fmt.Sprint("g", i), nil)
		}
		name := "one more"
		_, err := c.Groups.Create(t.Context(), groups.Edit{Name: &name})
		wantRefused(t, err, farm.CodeRefused, "Node group limit (1000) reached")
	})
}

// TestFallbackChain: a full group passes its requests on, along the whole chain, across a group
// without nodes. Capacity that becomes free in the own group is used first.
func TestFallbackChain(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		last := c.mustGroup("last", nil)
		empty := c.mustGroup("empty", last)
		first := c.mustGroup("first", empty)
		own, far, other := c.joinIn("own", 1, first), c.joinIn("far", 1, last), c.join("other", 5)
		start := func() string { return c.mustStart(StartRequest{GroupID: first.ID})[0] }
		one, two, three := start(), start(), start()
		c.wantOn(one, own)
		c.wantOn(two, far)
		c.wantOn(three, nil)
		c.wantMessage(three, "no node of group first has a free slot (2 nodes: 2 full)")
		inst, _ := c.Instances.Get(t.Context(), two)
		if inst.GroupID != first.ID {
			t.Errorf("group of the instance = %q", inst.GroupID)
		}
		a := own.take(api.OrderStart)
		if err := c.Instances.Terminate(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		own.say(own.take(api.OrderTerminate), api.PhaseTerminated)
		_ = a
		c.wantOn(three, own)
		c.wantSlots(other, 0)
		four := start()
		c.wantOn(four, nil)
		if err := c.Groups.AddNode(t.Context(), other.id, []string{empty.ID}); err != nil {
			t.Fatal(err)
		}
		c.wantOn(four, other)
	})
}

func TestStartInUnknownGroup(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		for _, id := range []string{"mac", templateID} {
			_, err := c.Start(t.Context(), StartRequest{TemplateID: templateID, Count: 1, GroupID: id})
			wantRefused(t, err, farm.CodeRefused, "Group "+id+" not found")
		}
		g := c.mustGroup("g", nil)
		c.wantMessage(c.mustStart(StartRequest{GroupID: g.ID})[0], "there are no nodes")
		c.join("one", 1)
		c.wantMessage(c.mustStart(StartRequest{GroupID: g.ID})[0], "group g has no nodes")
	})
}

func TestMembership(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		ctx := t.Context()
		a := c.join("one", 1)
		g, h := c.mustGroup("g", nil), c.mustGroup("h", nil)
		in := func(want ...string) {
			t.Helper()
			v, err := c.Nodes.Get(ctx, a.id)
			var got []string
			for _, g := range v.Groups {
				got = append(got, g.Name)
			}
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("node is in %v, want %v; %v", got, want, err)
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(c.Groups.AddNode(ctx, a.id, []string{h.ID, g.ID, h.ID}))
		in("h", "g")
		must(c.Groups.AddNode(ctx, a.id, []string{g.ID}))
		in("h", "g")
		must(c.Groups.RemoveNode(ctx, a.id, []string{h.ID}))
		must(c.Groups.RemoveNode(ctx, a.id, []string{h.ID}))
		in("g")
		wantRefused(t, c.Groups.AddNode(ctx, a.id, []string{h.ID, templateID}), farm.CodeNotFound, "Not found")
		wantRefused(t, c.Groups.RemoveNode(ctx, a.id, []string{"x"}), farm.CodeNotFound, "Not found")
		wantRefused(t, c.Groups.AddNode(ctx, "x", []string{h.ID}), farm.CodeNotFound, "Not found")
		in("g")
		for i := range groups.MaxPerNode - 1 {
			must(c.Groups.AddNode(ctx, a.id, []string{c.mustGroup(fmt.Sprint("more", i), nil).ID}))
		}
		wantRefused(t, c.Groups.AddNode(ctx, a.id, []string{h.ID}), farm.CodeRefused,
			"A node may be in at most 64 groups")
	})
}

func TestDeleteGroup(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		g := c.mustGroup("g", nil)
		var falling []*farm.Group
		for i := range 230 { // more than fit into one transaction
			falling = append(falling, c.mustGroup(fmt.Sprint("f", i), g))
		}
		var nodes []*agent
		for i := range 3 {
			nodes = append(nodes, c.joinIn(fmt.Sprint("n", i), 1, g, falling[0]))
		}
		runs := c.mustStart(StartRequest{GroupID: g.ID, Count: 3})
		waits := c.mustStart(StartRequest{GroupID: g.ID, Count: 2})
		other := c.mustStart(StartRequest{GroupID: falling[1].ID})[0]
		wantRefused(t, c.Groups.Delete(t.Context(), "x"), farm.CodeNotFound, "Not found")
		if err := c.Groups.Delete(t.Context(), g.ID); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, c.Groups.Delete(t.Context(), g.ID), farm.CodeNotFound, "Not found")
		for _, id := range waits {
			c.wantState(id, farm.Errored)
			c.wantMessage(id, "Its node group g was deleted while it waited")
		}
		for _, id := range runs {
			c.wantState(id, farm.Scheduling)
		}
		c.wantState(other, farm.Scheduling)
		for _, left := range c.Groups.List() {
			if left.Fallback != "" {
				t.Errorf("group %s falls back to %s", left.Name, left.Fallback)
			}
		}
		for _, a := range nodes {
			if v, _ := c.Nodes.Get(t.Context(), a.id); len(v.Node.Groups) != 1 || v.Groups[0].Name != "f0" {
				t.Errorf("node is in %v", v.Node.Groups)
			}
		}
		if err := c.Instances.Terminate(t.Context(), waits[0]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		c.wantState(waits[0], farm.InstanceRemoved)
	})
}

// TestGroupDeletedHalf: the leader finishes the deletion of a group that a replica left unfinished
// when it died.
func TestGroupDeletedHalf(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		g := c.mustGroup("g", nil)
		a := c.joinIn("one", 0, g)
		id := c.mustStart(StartRequest{GroupID: g.ID, Count: 3})[2]
		c.wantState(id, farm.Scheduling)
		if err := c.store.Commit(t.Context(), store.Delete(c.tables.Groups, g.ID, store.Any)); err != nil {
			t.Fatal(err)
		}
		c.restart()
		if v, _ := c.Nodes.Get(t.Context(), a.id); len(v.Groups) != 0 {
			t.Errorf("node shows %v", v.Groups)
		}
		a.c = c
		a.keepContact(reconcile.SweepInterval + 10*time.Second)
		c.wantState(id, farm.Errored)
		c.wantMessage(id, "Its node group was deleted while it waited")
		if v, _ := c.Nodes.Get(t.Context(), a.id); len(v.Node.Groups) != 0 {
			t.Errorf("node is in %v", v.Node.Groups)
		}
	})
}

// TestJoinGroups: groups are named by name and by id, and those kept from an earlier join do not
// undo the configuration.
func TestJoinGroups(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		g, h := c.mustGroup("g", nil), c.mustGroup("h", nil)
		req := api.JoinRequest{
			Protocol: api.LinkProtocol, Token: c.Nodes.JoinToken(), Name: "one", Host: "10.0.0.1",
			Groups: []string{"g", h.ID, "g"}, Capacity: 3,
		}
		answer, err := c.Nodes.Join(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		bad := req
		bad.Groups = []string{"G"}
		_, err = c.Nodes.Join(t.Context(), bad)
		wantRefused(t, err, farm.CodeRefused, `Node group "G" not found`)
		is := func(name, host string, capacity int, groups ...string) {
			t.Helper()
			v, err := c.Nodes.Get(t.Context(), answer.NodeID)
			n := v.Node
			if err != nil || n.Name != name || n.Host != host || n.Capacity != capacity ||
				fmt.Sprint(n.Groups) != fmt.Sprint(groups) {
				t.Errorf("node = %+v, want %s at %s with %d in %v; %v", n, name, host, capacity, groups, err)
			}
		}
		is("one", "10.0.0.1", 3, g.ID, h.ID)
		name, host, five := "renamed", "build1.example", 5
		if err := c.Nodes.Configure(t.Context(), answer.NodeID,
			nodes.Config{Name: &name, Host: &host, Capacity: &five}); err != nil {
			t.Fatal(err)
		}
		if err := c.Groups.RemoveNode(t.Context(), answer.NodeID, []string{g.ID}); err != nil {
			t.Fatal(err)
		}
		if err := c.Groups.Delete(t.Context(), g.ID); err != nil {
			t.Fatal(err)
		}
		again := req
		again.NodeID, again.Credential = answer.NodeID, answer.Credential
		again.Kept = []string{api.KeptCapacity, api.KeptGroups, api.KeptHost, api.KeptName}
		if _, err := c.Nodes.Join(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		is("renamed", "build1.example", 5, h.ID)
		again.Kept, again.Groups, again.Host, again.Capacity = []string{api.KeptGroups}, nil, "10.0.0.2", 4
		if _, err := c.Nodes.Join(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		is("one", "10.0.0.2", 4, h.ID)
	})
}
