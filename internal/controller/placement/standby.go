package placement

import (
	"context"
	"errors"
	"maps"
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

// BootAhead creates standbys on nodes that are free now, and none that would have to wait. A node that lacks only
// capacity for a request that waits gets none. It returns how many it has created.
func (p *Placer) BootAhead(
	ctx context.Context, term *record.Term, standbys []*farm.Instance,
) (booted int, err error) {
	drafts, decides := p.admit(standbys)
	avoid := p.wantedNodes(drafts)
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

// wantedNodes returns the nodes of drafts that lack only capacity for a request that waits.
func (p *Placer) wantedNodes(drafts []draft) map[string]bool {
	at := map[string]bool{}
	for _, d := range drafts {
		if d.placed != nil {
			at[d.node] = true
		}
	}
	wanted := map[string]bool{}
	if len(at) == 0 {
		return wanted
	}
	for _, full := range p.crowded(slices.Collect(maps.Keys(at))) {
		for _, node := range full {
			wanted[node] = true
		}
	}
	return wanted
}

// crowded returns, for requests that wait and that no node can take now, those of some nodes which lack nothing but
// free capacity for them.
func (p *Placer) crowded(nodes []string) [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.index.PendingCount() == 0 {
		return nil
	}
	return p.index.FullFor(p.waiting, nodes)
}

// waiting yields the IDs of the requests that wait, the oldest first.
func (p *Placer) waiting(yield func(string) bool) {
	for id := range p.db.Tables.Instances.Where(record.ByWaiting, record.AllCallers) {
		if !yield(id) {
			return
		}
	}
}

// Releases returns which of the standbys, by node, have to end for requests that wait and that no node can take now:
// the oldest requests first, and at most limit of them. See sched.Index.Releases.
func (p *Placer) Releases(standbys map[string]sched.Releasable, limit int) [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.index.PendingCount() == 0 || len(standbys) == 0 {
		return nil
	}
	return p.index.Releases(p.waiting, standbys, limit)
}

// Exclusion returns the filter by which an instance cannot take over a VM on a node: one of those by which it cannot be
// placed there, regardless of what is free; "" for none.
func (p *Placer) Exclusion(inst *farm.Instance, node string) sched.Filter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.db.Tables.NodeInfo(node).RequestableAbilities()&farm.TakesOver == 0 {
		return sched.FilterAbility
	}
	return p.index.Exclusion(p.requestLocked(inst).Request, node)
}
