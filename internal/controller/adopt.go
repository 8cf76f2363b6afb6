package controller

import (
	"context"
	"errors"

	"github.com/buildyard/buildyard/internal/controller/macpool"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// UnknownVMs returns the orphaned VMs of one node, given by id or name, or of all nodes.
func (c *Controller) UnknownVMs(ctx context.Context, node string) ([]nodelink.OrphanedVM, error) {
	nodes := []*farm.Node{}
	if node == "" {
		for _, n := range c.tables.Nodes.All() {
			nodes = append(nodes, n)
		}
	} else {
		n, err := c.nodeCalled(ctx, node)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	var list []nodelink.OrphanedVM
	for _, n := range nodes {
		list = append(list, c.Link.Orphans.On(n)...)
	}
	return list, nil
}

// nodeCalled finds a node by its id or, where that is unique, its name.
func (c *Controller) nodeCalled(ctx context.Context, name string) (*farm.Node, error) {
	var found *farm.Node
	for id, n := range c.tables.Nodes.All() {
		switch {
		case id == name:
			return n, nil
		case n.Name == name && found != nil:
			return nil, farm.Refused("several nodes have the name %s: use a node ID", name)
		case n.Name == name:
			found = n
		}
	}
	if found != nil {
		return found, nil
	}
	node, _, err := record.Lookup(ctx, c.tables.Nodes, name)
	return node, err
}

// AdoptAction selects what an adoption does with orphaned VMs.
type AdoptAction string

// The actions.
const (
	AdoptKeep   AdoptAction = "keep"   // they get records again, so that they are instances like any other
	AdoptRemove AdoptAction = "remove" // they are removed, in spite of the guard
)

// The outcomes of an adoption.
const (
	OutcomeKept    = "kept"
	OutcomeRemoved = "removed" // its removal is ordered, durably
	OutcomeRefused = "refused"
)

// Adoption decides about orphaned VMs of one node.
type Adoption struct {
	Node   string // id or name
	Action AdoptAction
	VMs    []string // ids; none: all orphaned VMs
	DryRun bool     // only report the outcomes

	May func(node string) error // why the caller may not decide about a node; nil: they may about all
}

// Adopted is the outcome of an adoption for one VM.
type Adopted struct {
	ID      string
	Outcome string
	Why     string // with OutcomeRefused
}

// MaxAdopted bounds one adoption; what is left is adopted with the next one.
const MaxAdopted = 500

// Adopt decides about orphaned VMs. The outcomes are durable; a repeated call returns the same ones
// and changes nothing.
func (c *Controller) Adopt(ctx context.Context, ask Adoption) ([]Adopted, error) {
	node, err := c.nodeCalled(ctx, ask.Node)
	if err == nil && ask.May != nil {
		err = ask.May(node.ID)
	}
	if err != nil {
		return nil, err
	}
	a := adopter{c: c, orphans: c.Link.Orphans, node: node, dry: ask.DryRun}
	if !a.orphans.HasInventory(node.ID) {
		return nil, farm.Unavailable(nil,
			"Node %s has not reported its VMs to this replica of the controller; try again when it is in contact",
			node.Name)
	}
	do, ok := map[AdoptAction]func(context.Context, string) (string, error){
		AdoptKeep: a.keep, AdoptRemove: a.release,
	}[ask.Action]
	if !ok {
		return nil, farm.Invalid("action", "must be %s or %s", AdoptKeep, AdoptRemove)
	}
	ids := ask.VMs
	if len(ids) == 0 {
		for _, u := range a.orphans.On(node) {
			ids = append(ids, u.ID)
		}
	}
	var list []Adopted
	for _, id := range ids[:min(len(ids), MaxAdopted)] {
		outcome, err := do(ctx, id)
		if err != nil && farm.CodeOf(err) != farm.CodeRefused {
			return list, err
		}
		done := Adopted{ID: id, Outcome: outcome}
		if err != nil {
			done.Outcome, done.Why = OutcomeRefused, err.Error()
		}
		list = append(list, done)
	}
	c.Link.Sessions.Signal(node.ID)
	return list, nil
}

// adopter decides about the orphaned VMs of one node.
type adopter struct {
	c       *Controller
	node    *farm.Node
	orphans *nodelink.Orphans
	dry     bool
}

// release allows the removal of a VM in spite of the guard.
func (a adopter) release(ctx context.Context, id string) (string, error) {
	c := a.c
	if !a.orphans.Contains(a.node.ID, id) {
		inst, _, err := a.record(ctx, id)
		switch {
		case err != nil:
			return "", err
		case inst != nil && inst.NodeID == a.node.ID && inst.OnNode():
			return "", farm.Refused("the VM belongs to an instance: terminate the instance")
		case a.orphans.IsReleased(a.node.ID, id):
			return OutcomeRemoved, nil
		}
		return "", farm.Refused("node %s has no orphaned VM with this ID", a.node.Name)
	}
	if a.dry || a.orphans.IsReleased(a.node.ID, id) {
		return OutcomeRemoved, nil
	}
	word := store.Put(c.tables.Released, record.ReleasedOrphanID(a.node.ID, id), &record.ReleasedOrphan{At: c.now()},
		store.Any)
	if err := c.store.Commit(ctx, word); err != nil {
		return "", err
	}
	c.log.WarnContext(ctx, "orphaned VM released for removal", "node", a.node.ID, "instance", id)
	return OutcomeRemoved, nil
}

// record reads a record from the store itself.
func (a adopter) record(ctx context.Context, id string) (*farm.Instance, int64, error) {
	if !record.ValidID(id) {
		return nil, 0, nil
	}
	return a.c.tables.Instances.GetLinearizable(ctx, id)
}

// keep creates a record for a VM, or assigns it that of its instance as long as the instance is
// pending. It uses no other existing record: an instance that is placed on one node can then never
// be started on another, nor the other way round.
func (a adopter) keep(ctx context.Context, id string) (string, error) {
	u, err := a.orphans.Claim(a.node.ID, id)
	if errors.Is(err, nodelink.ErrNotOrphaned) {
		return a.kept(ctx, id, "")
	}
	if err != nil {
		return "", err
	}
	defer a.orphans.Unclaim(a.node.ID, id)
	asked, rev, err := a.record(ctx, id)
	switch {
	case err != nil:
		return "", err
	case asked != nil && !asked.Waiting():
		return a.kept(ctx, id, u.Held.Claim)
	case a.dry:
		return OutcomeKept, nil
	}
	inst := a.c.recordOf(a.node, u, asked)
	err = a.c.adoptRecord(ctx, inst, rev)
	if errors.Is(err, store.ErrConflict) {
		return a.kept(ctx, id, inst.Claim)
	}
	if err != nil {
		return "", err
	}
	a.c.log.WarnContext(ctx, "orphaned VM adopted", "node", a.node.ID, "instance", id)
	return OutcomeKept, nil
}

// adoptRecord writes the record of an orphaned VM that becomes an instance again. The VM keeps the
// managed address that it has, unless another instance has taken that address since.
func (c *Controller) adoptRecord(ctx context.Context, inst *farm.Instance, rev int64) error {
	put := func() store.Change { return store.Put(c.tables.Instances, inst.ID, inst, store.IfRev(rev)) }
	if address, ok := c.MACs.Adoptable(inst); ok {
		inst.MAC = address
		err := c.store.Commit(ctx, append(macpool.Take(c.tables, inst), put())...)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		inst.MAC = ""
	}
	return c.store.Commit(ctx, put())
}

var errTaken = error(farm.Refused("an instance with this ID already exists, on another node or with another claim"))

// kept reports whether an existing record is the one that keep would have created; with claim ""
// any claim matches.
func (a adopter) kept(ctx context.Context, id, claim string) (string, error) {
	inst, _, err := a.record(ctx, id)
	switch {
	case err != nil:
		return "", err
	case inst == nil:
		return "", farm.Refused("node %s has no orphaned VM with this ID", a.node.Name)
	case inst.NodeID != a.node.ID || claim != "" && inst.Claim != claim:
		return "", errTaken
	}
	return OutcomeKept, nil
}
