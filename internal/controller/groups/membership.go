package groups

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// MaxPerNode is how many groups a node may be in.
const MaxPerNode = nodeinput.MaxGroups

// AddNode adds a node to groups; it may already be in some of them.
func (s *Groups) AddNode(ctx context.Context, node string, groups []string) error {
	return s.regroup(ctx, node, groups, func(in []string) []string {
		for _, g := range groups {
			if !slices.Contains(in, g) {
				in = append(in, g)
			}
		}
		return in
	})
}

// RemoveNode removes a node from groups; it need not be in any of them.
func (s *Groups) RemoveNode(ctx context.Context, node string, groups []string) error {
	return s.regroup(ctx, node, groups, func(in []string) []string {
		return slices.DeleteFunc(in, func(g string) bool { return slices.Contains(groups, g) })
	})
}

// regroup changes the groups of a node, and removes deleted groups from it. The given groups exist
// when the change is written.
func (s *Groups) regroup(ctx context.Context, id string, groups []string, change func([]string) []string) error {
	for range record.TxnAttempts {
		node, rev, err := record.Lookup(ctx, s.db.Tables.Nodes, id)
		if err != nil {
			return err
		}
		conditions, err := s.checks(ctx, groups)
		if err != nil {
			return err
		}
		in := change(slices.DeleteFunc(slices.Clone(node.Groups), func(g string) bool {
			_, _, known := s.db.Tables.Groups.Get(g)
			return !known && !slices.Contains(groups, g)
		}))
		switch {
		case slices.Equal(in, node.Groups):
			return nil
		case len(in) > MaxPerNode:
			return farm.Refused(
				"A node may be in at most %d groups, but node %s would be in %d; remove it from some groups first",
				MaxPerNode, node.Name, len(in))
		}
		n := node.Clone()
		n.Groups = in
		err = s.db.Store.Commit(ctx, append(conditions, store.Put(s.db.Tables.Nodes, id, n, store.IfRev(rev)))...)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		if err := s.db.UpToDate(ctx); err != nil {
			return farm.Unavailable(err, "The store cannot be reached; try again")
		}
	}
	return farm.Errorf(farm.CodeBusy, "Node update conflict; retry")
}

// checks returns the conditions that groups still exist; farm.CodeNotFound when one does not.
func (s *Groups) checks(ctx context.Context, ids []string) ([]store.Change, error) {
	checks := make([]store.Change, 0, len(ids)+1)
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		_, rev, err := s.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		checks = append(checks, store.Check(s.db.Tables.Groups, id, store.IfRev(rev)))
	}
	return checks, nil
}

// Named resolves groups that a node joins by name or id, with the conditions that they still
// exist.
func (s *Groups) Named(ctx context.Context, names []string) (ids []string, checks []store.Change, err error) {
	if len(names) == 0 {
		return nil, nil, nil
	}
	if err := s.db.UpToDate(ctx); err != nil { // another replica may have created one a moment ago
		return nil, nil, farm.Unavailable(err, "The store cannot be reached; try again")
	}
	all := s.db.Tables.Groups.Snapshot()
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
			ids, checks = append(ids, found), append(checks, store.Check(s.db.Tables.Groups, found, store.IfRev(rev)))
		}
	}
	return ids, checks, nil
}

// leaveGroups removes the nodes from deleted groups.
func (s *Groups) leaveGroups(ctx context.Context, w store.Writer) error {
	dead := map[string]bool{}
	var nodes []string
	for id, node := range s.db.Tables.Nodes.All() {
		for _, g := range node.Groups {
			if _, _, known := s.db.Tables.Groups.Get(g); !known {
				dead[g] = true
				nodes = append(nodes, id)
			}
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	if err := s.db.UpToDate(ctx); err != nil { // a node may become visible before its group
		return err
	}
	for g := range dead {
		if _, _, known := s.db.Tables.Groups.Get(g); known {
			delete(dead, g)
		}
	}
	isDead := func(g string) bool { return dead[g] }
	all := record.Bulk[farm.Node]{
		Writer: w, Limits: s.db.Store.Limits(), Table: s.db.Tables.Nodes,
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

// Prune removes nodes from deleted groups after the replica that deleted them died before it was
// done.
func (s *Groups) Prune(ctx context.Context, w *record.Term, _ time.Time) error {
	return s.leaveGroups(ctx, w)
}

// failWaiting ends the instances that are pending in a deleted group.
func (s *Groups) failWaiting(ctx context.Context, w store.Writer, gone *farm.Group) error {
	var ids []string
	for id, inst := range s.db.Tables.Instances.All() {
		if inst.GroupID == gone.ID && inst.AwaitsPlacement() {
			ids = append(ids, id)
		}
	}
	now := s.db.Now()
	all := record.Bulk[farm.Instance]{
		Writer: w, Limits: s.db.Store.Limits(), Table: s.db.Tables.Instances,
		Change: func(i *farm.Instance) (*farm.Instance, error) {
			return i.AfterGroupDeleted(now, gone.Name), nil
		},
	}
	return all.Update(ctx, ids)
}
