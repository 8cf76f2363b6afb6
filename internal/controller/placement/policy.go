package placement

import (
	"maps"
	"slices"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
)

// Policy decides which permission groups may start instances on which nodes.
type Policy interface {
	// Starters returns these groups by the id of the node; nil where rights on single nodes are not
	// in use.
	Starters() map[string][]string
	// Watch makes changed be called after each change, by one goroutine at a time.
	Watch(changed func())
}

// followPermits makes the placer respect the permits from now on.
func (p *Placer) followPermits(permits Policy) {
	if permits == nil {
		return
	}
	permits.Watch(func() { p.permit(permits) })
	p.permit(permits)
}

// permit applies the current permits. They affect pending requests immediately: nodes whose
// permitted groups have changed are evaluated again. To the index a permission group is a group of
// nodes.
func (p *Placer) permit(permits Policy) {
	p.permitting.Lock() // a later read must not be applied earlier
	defer p.permitting.Unlock()
	starters := permits.Starters()
	for node, groups := range starters {
		ids := make([]string, len(groups))
		for i, g := range groups {
			ids[i] = sched.PolicyGroup(g)
		}
		starters[node] = ids
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.starters
	p.starters = starters
	if (was == nil) != (starters == nil) {
		for id := range p.db.Tables.Instances.All() {
			p.setInstanceLocked(id)
		}
	}
	for node := range maps.Keys(was) {
		if _, still := starters[node]; !still {
			p.setNodeLocked(node)
		}
	}
	for node, groups := range starters {
		if !slices.Equal(was[node], groups) {
			p.setNodeLocked(node)
		}
	}
	p.Wake()
}

// groupsLocked returns the groups of a node in the index.
func (p *Placer) groupsLocked(n *farm.Node) []string {
	open := p.starters[n.ID]
	if len(open) == 0 {
		return n.Groups
	}
	return slices.Concat(n.Groups, open)
}

// requestLocked returns an instance in the form of the index.
func (p *Placer) requestLocked(i *farm.Instance) sched.Instance {
	out := sched.NewInstance(i)
	if i.PermissionGroup != "" && p.starters != nil {
		out.GroupID = sched.PolicyGroup(i.PermissionGroup)
	}
	return out
}
