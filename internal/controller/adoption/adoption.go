package adoption

import (
	"context"
	"errors"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Options is what Adoption needs of other parts. All fields are set.
type Options struct {
	Registry string // address of the registry, for instances whose node does not report it
	Orphans  Orphans

	// Apply returns an instance after a status of its node.
	Apply func(inst *farm.Instance, status api.InstanceStatus, now time.Time) *farm.Instance
	// FindMAC returns the managed address that the VM of an instance has, unless another one has it.
	FindMAC func(inst *farm.Instance) (address string, ok bool)
	// AssignMAC returns the change that assigns its address to an instance; none when it has none.
	AssignMAC func(inst *farm.Instance) []store.Change
	// Signal wakes the poll of a node.
	Signal func(node string)
}

// Orphans are the orphaned VMs of all nodes.
type Orphans interface {
	// On returns those of a node, in the order of their ids.
	On(node *farm.Node) []record.OrphanedVM
	// HasInventory reports whether a node is in contact and has sent its inventory.
	HasInventory(node string) bool
	Contains(node, id string) bool
	IsReleased(node, id string) bool
	// Claim protects an orphaned VM from removal until Unclaim, while a record is created for it.
	Claim(node, id string) (vm record.OrphanedVM, err error)
	Unclaim(node, id string)
}

// Adoption decides about orphaned VMs.
type Adoption struct {
	db record.DB
	o  Options
}

// New returns the adoption of the orphaned VMs of a cloud.
func New(db record.DB, o Options) *Adoption { return &Adoption{db, o} }

// List returns the orphaned VMs of one node, given by id or name, or of all nodes.
func (a *Adoption) List(ctx context.Context, node string) ([]record.OrphanedVM, error) {
	nodes := []*farm.Node{}
	if node == "" {
		for _, n := range a.db.Tables.Nodes.All() {
			nodes = append(nodes, n)
		}
	} else {
		n, err := a.findNode(ctx, node)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	var list []record.OrphanedVM
	for _, n := range nodes {
		list = append(list, a.o.Orphans.On(n)...)
	}
	return list, nil
}

// findNode finds a node by its id or, where that is unique, its name.
func (a *Adoption) findNode(ctx context.Context, name string) (*farm.Node, error) {
	var found *farm.Node
	for id, n := range a.db.Tables.Nodes.All() {
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
	node, _, err := record.Lookup(ctx, a.db.Tables.Nodes, name)
	return node, err
}

// Action selects what is done with orphaned VMs.
type Action string

// The actions.
const (
	Keep   Action = "keep"   // they get records again, so that they are instances like any other
	Remove Action = "remove" // they are removed, in spite of the guard
)

// The outcomes of an adoption.
const (
	OutcomeKept    = "kept"
	OutcomeRemoved = "removed" // its removal is ordered, durably
	OutcomeRefused = "refused"
)

// Request is a decision about orphaned VMs of one node.
type Request struct {
	Node   string // id or name
	Action Action
	VMs    []string // ids; none: all orphaned VMs
	DryRun bool     // only report the outcomes

	May func(node string) error // why the caller may not decide about a node; nil: they may about all
}

// Result is the outcome for one VM.
type Result struct {
	ID      string
	Outcome string
	Why     string // with OutcomeRefused
}

// MaxVMs bounds one adoption; what is left is adopted with the next one.
const MaxVMs = 500

// Adopt decides about orphaned VMs. The outcomes are durable; a repeated call returns the same ones
// and changes nothing.
func (a *Adoption) Adopt(ctx context.Context, r Request) ([]Result, error) {
	node, err := a.findNode(ctx, r.Node)
	if err == nil && r.May != nil {
		err = r.May(node.ID)
	}
	if err != nil {
		return nil, err
	}
	d := decision{Adoption: a, node: node, dryRun: r.DryRun}
	if !a.o.Orphans.HasInventory(node.ID) {
		return nil, farm.Unavailable(nil,
			"Node %s has not reported its VMs to this replica of the controller; try again when it is in contact",
			node.Name)
	}
	do, ok := map[Action]func(context.Context, string) (string, error){
		Keep: d.adopt, Remove: d.release,
	}[r.Action]
	if !ok {
		return nil, farm.Invalid("action", "must be %s or %s", Keep, Remove)
	}
	ids := r.VMs
	if len(ids) == 0 {
		for _, u := range a.o.Orphans.On(node) {
			ids = append(ids, u.ID)
		}
	}
	var list []Result
	for _, id := range ids[:min(len(ids), MaxVMs)] {
		outcome, err := do(ctx, id)
		if err != nil && farm.CodeOf(err) != farm.CodeRefused {
			return list, err
		}
		result := Result{ID: id, Outcome: outcome}
		if err != nil {
			result.Outcome, result.Why = OutcomeRefused, err.Error()
		}
		list = append(list, result)
	}
	a.o.Signal(node.ID)
	return list, nil
}

// decision carries out a request for the orphaned VMs of one node.
type decision struct {
	*Adoption
	node   *farm.Node
	dryRun bool
}

// release allows the removal of a VM in spite of the guard.
func (d decision) release(ctx context.Context, id string) (string, error) {
	if !d.o.Orphans.Contains(d.node.ID, id) {
		inst, _, err := d.record(ctx, id)
		switch {
		case err != nil:
			return "", err
		case inst != nil && inst.NodeID == d.node.ID && inst.OnNode():
			return "", farm.Refused("the VM belongs to an instance: terminate the instance")
		case d.o.Orphans.IsReleased(d.node.ID, id):
			return OutcomeRemoved, nil
		}
		return "", farm.Refused("node %s has no orphaned VM with this ID", d.node.Name)
	}
	if d.dryRun || d.o.Orphans.IsReleased(d.node.ID, id) {
		return OutcomeRemoved, nil
	}
	release := store.Put(d.db.Tables.Released, record.ReleasedOrphanID(d.node.ID, id),
		&record.ReleasedOrphan{At: d.db.Now()}, store.Any)
	if err := d.db.Store.Commit(ctx, release); err != nil {
		return "", err
	}
	d.db.Log.WarnContext(ctx, "orphaned VM released for removal", "node_id", d.node.ID, "instance_id", id)
	return OutcomeRemoved, nil
}

// record reads a record from the store itself.
func (d decision) record(ctx context.Context, id string) (*farm.Instance, int64, error) {
	if !record.ValidID(id) {
		return nil, 0, nil
	}
	return d.db.Tables.Instances.GetLinearizable(ctx, id)
}

// adopt creates a record for a VM, or assigns it that of its instance as long as the instance is
// pending. It uses no other existing record: an instance that is placed on one node can then never
// be started on another, nor the other way round.
func (d decision) adopt(ctx context.Context, id string) (string, error) {
	vm, err := d.o.Orphans.Claim(d.node.ID, id)
	if errors.Is(err, record.ErrNotOrphaned) {
		return d.verify(ctx, id, "")
	}
	if err != nil {
		return "", err
	}
	defer d.o.Orphans.Unclaim(d.node.ID, id)
	requested, rev, err := d.record(ctx, id)
	switch {
	case err != nil:
		return "", err
	case requested != nil && !requested.AwaitsPlacement():
		return d.verify(ctx, id, vm.Held.Claim)
	case d.dryRun:
		return OutcomeKept, nil
	}
	inst := d.recordOf(d.node, vm, requested)
	err = d.write(ctx, inst, rev)
	if errors.Is(err, store.ErrConflict) {
		return d.verify(ctx, id, inst.Claim)
	}
	if err != nil {
		return "", err
	}
	d.db.Log.WarnContext(ctx, "orphaned VM adopted", "node_id", d.node.ID, "instance_id", id)
	return OutcomeKept, nil
}

// write writes the record of an orphaned VM that becomes an instance again. The VM keeps the
// managed address that it has, unless another instance has taken that address since.
func (a *Adoption) write(ctx context.Context, inst *farm.Instance, rev int64) error {
	put := func() store.Change { return store.Put(a.db.Tables.Instances, inst.ID, inst, store.IfRev(rev)) }
	if address, ok := a.o.FindMAC(inst); ok {
		inst.MAC = address
		err := a.db.Store.Commit(ctx, append(a.o.AssignMAC(inst), put())...)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		inst.MAC = ""
	}
	return a.db.Store.Commit(ctx, put())
}

var errElsewhere = error(farm.Refused("an instance with this ID already exists, on another node or with another claim"))

// verify reports whether an existing record is the one that adopt would have created; with claim ""
// any claim matches.
func (d decision) verify(ctx context.Context, id, claim string) (string, error) {
	inst, _, err := d.record(ctx, id)
	switch {
	case err != nil:
		return "", err
	case inst == nil:
		return "", farm.Refused("node %s has no orphaned VM with this ID", d.node.Name)
	case inst.NodeID != d.node.ID || claim != "" && inst.Claim != claim:
		return "", errElsewhere
	}
	return OutcomeKept, nil
}
