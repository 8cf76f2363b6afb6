package controller

import (
	"context"
	"maps"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Instances gives every instance in the order of their ids, with the reason for
// waiting as message where one waits, and how far its save is where one is saved.
func (c *Controller) Instances() []*farm.Instance {
	list := make([]*farm.Instance, 0, c.tables.Instances.Len())
	for _, inst := range c.tables.Instances.All() {
		list = append(list, c.shown(inst))
	}
	return list
}

// Instance gives one instance; farm.CodeNotFound when there is none.
func (c *Controller) Instance(ctx context.Context, id string) (*farm.Instance, error) {
	inst, _, err := c.lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	return c.shown(inst), nil
}

// shown gives an instance as clients see it.
func (c *Controller) shown(inst *farm.Instance) *farm.Instance {
	if inst.State == farm.Pushing && inst.Message == "" {
		return c.withStage(inst)
	}
	return c.placer.explained(inst)
}

// lookup reads an instance from memory, and from the store itself before it says
// that there is none: another replica may have made it a moment ago.
func (c *Controller) lookup(ctx context.Context, id string) (*farm.Instance, int64, error) {
	if inst, rev, ok := c.tables.Instances.Get(id); ok {
		return inst, rev, nil
	}
	if !validID(id) {
		return nil, 0, farm.NotFound()
	}
	inst, rev, err := c.tables.Instances.GetLinearizable(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	if inst == nil {
		return nil, 0, farm.NotFound()
	}
	return inst, rev, nil
}

// validID keeps texts that cannot be ids from the store.
func validID(id string) bool { return id != "" && len(id) <= 64 }

// InstanceUpdate is what a client may change of an instance; nil fields stay.
type InstanceUpdate struct {
	Name       *string
	ExternalID *string
	Metadata   map[string]any
}

// UpdateInstance changes the names and metadata of an instance.
func (c *Controller) UpdateInstance(ctx context.Context, id string, up InstanceUpdate) error {
	return c.modify(ctx, id, func(inst *farm.Instance) (*farm.Instance, error) {
		n := inst.Clone()
		if up.Name != nil {
			n.Name = *up.Name
		}
		if up.ExternalID != nil {
			n.ExternalID = *up.ExternalID
		}
		if up.Metadata != nil {
			n.Metadata = maps.Clone(up.Metadata)
		}
		n.Updated = c.now()
		return n, nil
	})
}

// modify reads, changes and writes one instance until no other writer is in
// between. A change that gives back the very record it got writes nothing. A save
// that the change takes from the instance ends with it.
func (c *Controller) modify(ctx context.Context, id string, change func(*farm.Instance) (*farm.Instance, error)) error {
	if _, _, err := c.lookup(ctx, id); err != nil {
		return err
	}
	var had *farm.Task
	now, err := store.Update(ctx, c.store, c.tables.Instances, id, func(inst *farm.Instance) (*farm.Instance, error) {
		if inst == nil {
			return nil, farm.NotFound()
		}
		had = inst.Task
		return change(inst)
	})
	if err != nil || had == nil || had.Kind != farm.TaskSave || worksOn(now, had.ID) {
		return err
	}
	if err := c.endSave(ctx, had.ID, now); err != nil { // tried again by the housekeeping
		c.log.WarnContext(ctx, "could not end a save", "request", had.ID, "error", err)
	}
	return nil
}

// Terminate asks for the end of an instance, durably. It wins over everything that
// is going on; asking twice is asking once.
func (c *Controller) Terminate(ctx context.Context, id string) error {
	return c.modify(ctx, id, func(inst *farm.Instance) (*farm.Instance, error) {
		return c.terminating(inst)
	})
}

func (c *Controller) terminating(inst *farm.Instance) (*farm.Instance, error) {
	to, ok := farm.NextInstance(inst.State, farm.Terminate)
	if !ok {
		return inst, nil
	}
	n := inst.Clone()
	n.State, n.Message, n.Updated = to, "", c.now()
	n.SettleTask()
	return n, nil
}

// finished makes the record of an instance of which nothing is left.
func finished(inst *farm.Instance, now time.Time) *farm.Instance {
	n := inst.Clone()
	n.State, n.Finished, n.Updated, n.Message = farm.Terminated, now, now, ""
	n.SettleTask()
	if n.VM != nil {
		vm := *n.VM
		vm.Status = farm.VMDeleted
		n.VM = &vm
	}
	return n
}
