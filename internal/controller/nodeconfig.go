package controller

import (
	"context"
	"reflect"
	"time"

	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Limits of a node's configuration.
const (
	MaxNodeName  = nodeinput.MaxName
	MaxVMCount   = nodeinput.MaxCapacity
	MaxVCPUs     = nodeinput.MaxVCPUs
	MaxRAM       = 16 << 20 // MB
	MaxDrainWait = 30 * 24 * time.Hour
)

// NodeConfig is an operator's change of a node; nil fields stay as they are. The caller has checked
// types and ranges.
type NodeConfig struct {
	Name         *string
	Host         *string // "": the address that the node reports is used again
	Capacity     *int
	Mode         *farm.CapacityMode
	VCPUOverride *int // 0: none
	RAMOverride  *int // MB; 0: none
	NoCentralLog *bool
	Drain        *bool
	DrainReason  *string
	DrainFor     *time.Duration // after which what still runs there is terminated; 0: it is not
}

// ConfigureNode changes a node in one transaction: later placements respect it. VMs that run there
// stay, even beyond the new capacity.
func (c *Controller) ConfigureNode(ctx context.Context, id string, conf NodeConfig) error {
	if _, _, err := record.Lookup(ctx, c.tables.Nodes, id); err != nil {
		return err
	}
	info := &farm.NodeInfo{}
	if known, _, ok := c.tables.Infos.Get(id); ok {
		info = known
	}
	var made *farm.Node // what the last try was about to write
	w := c.Events.With(c.store, func() farm.Event { return farm.NewNodeEvent(farm.EventConfigNode, made, conf.given()) })
	_, err := store.Update(ctx, w, c.tables.Nodes, id, func(old *farm.Node) (*farm.Node, error) {
		if old == nil {
			return nil, farm.NotFound()
		}
		n := old.Clone()
		conf.apply(n)
		if err := conf.refuse(n, info); err != nil {
			return nil, err
		}
		if err := conf.drain(n, c.now()); err != nil {
			return nil, err
		}
		if reflect.DeepEqual(old, n) {
			return old, nil
		}
		made = n
		return n, nil
	})
	return err
}

// given returns the fields that are set, under the names that the event log uses for them.
func (f *NodeConfig) given() map[string]any {
	fields := map[string]any{}
	note(fields, "new_name", f.Name)
	note(fields, "host", f.Host)
	note(fields, "max_vm_count", f.Capacity)
	note(fields, "capacity_mode", f.Mode)
	note(fields, "vcpu_override", f.VCPUOverride)
	note(fields, "ram_override", f.RAMOverride)
	note(fields, "disable_central_logging", f.NoCentralLog)
	note(fields, "drain_mode", f.Drain)
	note(fields, "drain_reason", f.DrainReason)
	if f.DrainFor != nil {
		fields["drain_deadline"] = f.DrainFor.Seconds()
	}
	return fields
}

func note[T any](fields map[string]any, name string, value *T) {
	if value != nil {
		fields[name] = *value
	}
}

// apply sets the plain fields.
func (f *NodeConfig) apply(n *farm.Node) {
	set(&n.Name, f.Name)
	set(&n.Capacity, f.Capacity)
	set(&n.Mode, f.Mode)
	set(&n.VCPUOverride, f.VCPUOverride)
	set(&n.RAMOverride, f.RAMOverride)
	set(&n.NoCentralLog, f.NoCentralLog)
	if f.Host != nil {
		n.HostFixed = *f.Host != ""
		n.Host = firstOf(*f.Host, n.Host)
	}
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// refuse returns why a configuration of a node is invalid.
func (f *NodeConfig) refuse(n *farm.Node, info *farm.NodeInfo) error {
	most := info.MaxVMs()
	switch {
	case f.Capacity != nil && most > 0 && *f.Capacity > most:
		return farm.Refused(
			"max_vm_count cannot be %d: node %s is a Mac with Apple silicon, on which at most %d macOS VMs may run",
			*f.Capacity, n.Name, most)
	case f.RAMOverride != nil && info.MemoryMB > 0 && *f.RAMOverride > info.MemoryMB:
		return farm.Refused("ram_override cannot be %d MiB: node %s has %d MiB of memory", *f.RAMOverride, n.Name,
			info.MemoryMB)
	case n.Mode == farm.CapacityByResources:
		return nil
	}
	for _, o := range []struct {
		name  string
		value *int
	}{{"vcpu_override", f.VCPUOverride}, {"ram_override", f.RAMOverride}} {
		if o.value != nil && *o.value > 0 {
			return farm.Refused(
				"%s counts in the capacity mode resource only, and node %s is in the mode number; set capacity_mode "+
					"to resource as well", o.name, n.Name)
		}
	}
	return nil
}

// drain begins, changes or ends the drain of a node.
func (f *NodeConfig) drain(n *farm.Node, now time.Time) error {
	if f.Drain != nil {
		event := farm.DrainOff
		if *f.Drain {
			event = farm.DrainOn
		}
		n.Enter(event, "", now)
	}
	if !n.Drain {
		n.Draining = nil
		if f.DrainReason != nil || f.DrainFor != nil {
			return farm.Refused(
				"Node %s is not drained: drain_reason and a drain deadline require drain_mode true", n.Name)
		}
		return nil
	}
	d := farm.DrainInfo{Since: now}
	if n.Draining != nil {
		d = *n.Draining
	}
	set(&d.Reason, f.DrainReason)
	if f.DrainFor != nil {
		d.Until = time.Time{}
		if *f.DrainFor > 0 {
			d.Until = now.Add(*f.DrainFor)
		}
	}
	n.Draining = &d
	return nil
}
