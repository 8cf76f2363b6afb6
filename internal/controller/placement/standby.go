package placement

import (
	"context"
	"errors"
	"slices"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

// ErrStandbyTaken reports that a creation has written nothing, because a standby that it was to claim is no longer
// available.
var ErrStandbyTaken = errors.New("a standby of the pool is no longer available")

// Standby is a standby that a creation claims, as it was when that was decided.
type Standby struct {
	Record *farm.Instance
	Rev    int64
}

// drafts returns the new instances of a creation as they are going to be written: those that claim a standby are
// placed already, the scheduler decides on the others.
func (p *Placer) drafts(c Creation) ([]draft, *record.Term) {
	var rest []*farm.Instance
	var claims []draft
	for _, inst := range c.Instances {
		standby, ok := c.Standbys[inst.ID]
		if !ok {
			rest = append(rest, inst)
			continue
		}
		claims = append(claims, draft{requested: inst, placed: inst, node: inst.NodeID, standbyRev: standby.Rev})
	}
	placed, term := p.admit(rest)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range claims {
		claims[i].at = p.nodes[claims[i].node]
	}
	if len(claims) > 0 && term == nil {
		term = p.term // nil on a replica that does not lead: the revisions alone decide
	}
	return slices.Concat(placed, claims), term
}

// BootAhead creates standbys on nodes that are free now, and none that would have to wait. Nodes in avoid get none.
// It returns how many it has created.
func (p *Placer) BootAhead(
	ctx context.Context, term *record.Term, standbys []*farm.Instance, avoid map[string]bool,
) (booted int, err error) {
	drafts, decides := p.admit(standbys)
	var unused []draft
	for i, d := range drafts {
		if d.placed == nil {
			continue // admit has removed it from the index
		}
		if decides != term || avoid[d.node] || err != nil || ctx.Err() != nil {
			unused = append(unused, d)
			continue
		}
		changes := append(p.creation(drafts[i]), claim(p.db.Tables, d.node, d.at, false))
		if err = term.Commit(ctx, changes...); err != nil {
			unused = append(unused, d)
			continue
		}
		booted++
	}
	p.dismiss(unused)
	if errors.Is(err, store.ErrConflict) { // the node has changed: the next attempt sees it
		err = nil
	}
	return booted, err
}

// Crowded returns, for requests that wait, the nodes of a set which lack nothing but free capacity for them. It looks
// at most at limit requests.
func (p *Placer) Crowded(nodes map[string]bool, limit int) (of [][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.db.Now()
	for id := range p.waitingLocked() {
		if len(of) == limit {
			break
		}
		var full []string
		free := false
		for _, n := range p.index.Explain(id, now) {
			free = free || n.Filter == ""
			if n.Filter == sched.FilterFull && nodes[n.NodeID] {
				full = append(full, n.NodeID)
			}
		}
		if !free && len(full) > 0 {
			of = append(of, full)
		}
	}
	return of
}

// waitingLocked yields the ids of the instances that wait for a node, in no order.
func (p *Placer) waitingLocked() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if p.index.PendingCount() == 0 {
			return
		}
		for id := range p.db.Tables.Instances.Where(record.ByWaiting, record.AllCallers) {
			if !yield(id) {
				return
			}
		}
	}
}

// MayUse reports whether an instance may run on a node by the rights of its permission group, and whether that node
// takes starts.
func (p *Placer) MayUse(inst *farm.Instance, node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.nodes[node]
	if at.record == nil || !at.record.AcceptsStarts() || at.Unreported {
		return false
	}
	return inst.PermissionGroup == "" || p.starters == nil ||
		slices.Contains(p.starters[node], sched.PolicyGroup(inst.PermissionGroup))
}
