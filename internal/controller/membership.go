package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// MaxNodeGroups is how many groups a node may be in.
const MaxNodeGroups = nodeinput.MaxGroups

// AddToGroups adds a node to groups; it may already be in some of them.
func (c *Controller) AddToGroups(ctx context.Context, node string, groups []string) error {
	return c.regroup(ctx, node, groups, func(in []string) []string {
		for _, g := range groups {
			if !slices.Contains(in, g) {
				in = append(in, g)
			}
		}
		return in
	})
}

// RemoveFromGroups removes a node from groups; it need not be in any of them.
func (c *Controller) RemoveFromGroups(ctx context.Context, node string, groups []string) error {
	return c.regroup(ctx, node, groups, func(in []string) []string {
		return slices.DeleteFunc(in, func(g string) bool { return slices.Contains(groups, g) })
	})
}

// regroup changes the groups of a node, and removes deleted groups from it. The given groups exist
// when the change is written.
func (c *Controller) regroup(ctx context.Context, id string, groups []string, change func([]string) []string) error {
	for range statusAttempts {
		node, rev, err := c.lookupNode(ctx, id)
		if err != nil {
			return err
		}
		checks, err := c.groupChecks(ctx, groups)
		if err != nil {
			return err
		}
		in := change(slices.DeleteFunc(slices.Clone(node.Groups), func(g string) bool {
			_, _, known := c.tables.Groups.Get(g)
			return !known && !slices.Contains(groups, g)
		}))
		switch {
		case slices.Equal(in, node.Groups):
			return nil
		case len(in) > MaxNodeGroups:
			return farm.Refused(
				"A node may be in %d groups at most, and node %s would be in %d; take it out of some first",
				MaxNodeGroups, node.Name, len(in))
		}
		n := node.Clone()
		n.Groups = in
		err = c.store.Commit(ctx, append(checks, store.Put(c.tables.Nodes, id, n, store.IfRev(rev)))...)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		if err := c.db.UpToDate(ctx); err != nil {
			return farm.Unavailable(err, "The store cannot be reached; try again")
		}
	}
	return farm.Errorf(farm.CodeBusy, "Node update conflict; retry")
}

// groupChecks returns the conditions that groups still exist; farm.CodeNotFound when one does not.
func (c *Controller) groupChecks(ctx context.Context, ids []string) ([]store.Change, error) {
	checks := make([]store.Change, 0, len(ids)+1)
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		_, rev, err := c.lookupGroup(ctx, id)
		if err != nil {
			return nil, err
		}
		checks = append(checks, store.Check(c.tables.Groups, id, store.IfRev(rev)))
	}
	return checks, nil
}

// namedGroups resolves groups that a node joins by name or id, with the conditions that they still
// exist.
func (c *Controller) namedGroups(ctx context.Context, names []string) (ids []string, checks []store.Change, err error) {
	if len(names) == 0 {
		return nil, nil, nil
	}
	if err := c.db.UpToDate(ctx); err != nil { // another replica may have created one a moment ago
		return nil, nil, farm.Unavailable(err, "The store cannot be reached; try again")
	}
	all := c.tables.Groups.Snapshot()
	for _, name := range names {
		found := ""
		for id, g := range all.All() {
			if id == name || g.Name == name {
				found = id
			}
		}
		if found == "" {
			return nil, nil, farm.Refused("Node group %q not found", name)
		}
		if !slices.Contains(ids, found) {
			_, rev, _ := all.Get(found)
			ids, checks = append(ids, found), append(checks, store.Check(c.tables.Groups, found, store.IfRev(rev)))
		}
	}
	return ids, checks, nil
}

// leaveGroups removes the nodes from deleted groups.
func (c *Controller) leaveGroups(ctx context.Context, w store.Writer) error {
	dead := map[string]bool{}
	var nodes []string
	for id, node := range c.tables.Nodes.All() {
		for _, g := range node.Groups {
			if _, _, known := c.tables.Groups.Get(g); !known {
				dead[g] = true
				nodes = append(nodes, id)
			}
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	if err := c.db.UpToDate(ctx); err != nil { // a node may become visible before its group
		return err
	}
	for g := range dead {
		if _, _, known := c.tables.Groups.Get(g); known {
			delete(dead, g)
		}
	}
	isDead := func(g string) bool { return dead[g] }
	all := record.Bulk[farm.Node]{
		Writer: w, Limits: c.store.Limits(), Table: c.tables.Nodes,
		Change: func(n *farm.Node) (*farm.Node, error) {
			if !slices.ContainsFunc(n.Groups, isDead) {
				return n, nil
			}
			n = n.Clone()
			n.Groups = slices.DeleteFunc(slices.Clone(n.Groups), isDead)
			return n, nil
		},
	}
	return all.Update(ctx, slices.Compact(nodes))
}

// tidyGroups removes nodes from deleted groups after the replica that deleted them died before it
// was done.
func (c *Controller) tidyGroups(ctx context.Context, w *record.Term, _ time.Time) error {
	return c.leaveGroups(ctx, w)
}

// failWaiting ends the instances that are pending in a deleted group.
func (c *Controller) failWaiting(ctx context.Context, w store.Writer, gone *farm.Group) error {
	var ids []string
	for id, inst := range c.tables.Instances.All() {
		if inst.GroupID == gone.ID && inst.Waiting() {
			ids = append(ids, id)
		}
	}
	now := c.now()
	all := record.Bulk[farm.Instance]{
		Writer: w, Limits: c.store.Limits(), Table: c.tables.Instances,
		Change: func(i *farm.Instance) (*farm.Instance, error) {
			return groupless(i, now, gone.Name), nil
		},
	}
	return all.Update(ctx, ids)
}

// ungroupedAt covers instances that were requested in a group during its deletion. A group that
// another replica created may become visible a moment later than its instances.
func ungroupedAt(k *reconciler, i *farm.Instance) time.Time {
	if i.GroupID == "" || !i.Waiting() {
		return time.Time{}
	}
	if _, _, known := k.c.tables.Groups.Get(i.GroupID); known {
		return time.Time{}
	}
	return i.Updated.Add(record.BarrierTimeout)
}

func (k *reconciler) ungrouped(i *farm.Instance, now time.Time) *farm.Instance {
	return groupless(i, now, "")
}

// groupless returns an instance that is pending in a deleted group: it would never be placed.
func groupless(i *farm.Instance, now time.Time, name string) *farm.Instance {
	if !i.Waiting() {
		return i
	}
	if name != "" {
		name = " " + name
	}
	return expired(i, now, fmt.Sprintf("Its node group%s was deleted while it waited", name))
}
