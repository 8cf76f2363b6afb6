package nodes

import (
	"cmp"
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
	MaxName      = nodeinput.MaxName
	MaxVMCount   = nodeinput.MaxCapacity
	MaxVCPUs     = nodeinput.MaxVCPUs
	MaxRAM       = 16 << 20 // MB
	MaxDrainWait = 30 * 24 * time.Hour
)

// Config is an operator's change of a node; nil fields stay as they are. The caller has checked types
// and ranges.
type Config struct {
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

// Configure changes a node in one transaction: later placements respect it. VMs that run there stay,
// even beyond the new capacity.
func (n *Nodes) Configure(ctx context.Context, id string, conf Config) error {
	if _, _, err := record.Lookup(ctx, n.db.Tables.Nodes, id); err != nil {
		return err
	}
	info := n.db.Tables.NodeInfo(id)
	var changed *farm.Node // what the last try was about to write
	w := n.opts.WithEvent(n.db.Store, func() farm.Event {
		return farm.NewNodeEvent(farm.EventConfigNode, changed, conf.fields())
	})
	_, err := store.Update(ctx, w, n.db.Tables.Nodes, id, func(old *farm.Node) (*farm.Node, error) {
		if old == nil {
			return nil, farm.NotFound()
		}
		node := old.Clone()
		conf.apply(node)
		if err := conf.check(node, info); err != nil {
			return nil, err
		}
		if err := conf.applyDrain(node, n.db.Now()); err != nil {
			return nil, err
		}
		if reflect.DeepEqual(old, node) {
			return old, nil
		}
		changed = node
		return node, nil
	})
	return err
}

// fields returns the fields that are set, under the names that the event log uses for them.
func (f *Config) fields() map[string]any {
	fields := map[string]any{}
	addField(fields, "new_name", f.Name)
	addField(fields, "host", f.Host)
	addField(fields, "max_vm_count", f.Capacity)
	addField(fields, "capacity_mode", f.Mode)
	addField(fields, "vcpu_override", f.VCPUOverride)
	addField(fields, "ram_override", f.RAMOverride)
	addField(fields, "disable_central_logging", f.NoCentralLog)
	addField(fields, "drain_mode", f.Drain)
	addField(fields, "drain_reason", f.DrainReason)
	if f.DrainFor != nil {
		fields["drain_deadline"] = f.DrainFor.Seconds()
	}
	return fields
}

func addField[T any](fields map[string]any, name string, value *T) {
	if value != nil {
		fields[name] = *value
	}
}

// apply sets the fields that depend on no other.
func (f *Config) apply(node *farm.Node) {
	set(&node.Name, f.Name)
	set(&node.Capacity, f.Capacity)
	set(&node.CapacityMode, f.Mode)
	set(&node.VCPUOverride, f.VCPUOverride)
	set(&node.RAMOverride, f.RAMOverride)
	set(&node.NoCentralLog, f.NoCentralLog)
	if f.Host != nil {
		node.HostFixed = *f.Host != ""
		node.Host = cmp.Or(*f.Host, node.Host)
	}
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// check returns why a node cannot be configured so; nil when it can.
func (f *Config) check(node *farm.Node, info *farm.NodeInfo) error {
	maxVMs := info.MaxVMs()
	switch {
	case f.Capacity != nil && maxVMs > 0 && *f.Capacity > maxVMs:
		return farm.Refused(
			"max_vm_count cannot be %d: node %s is a Mac with Apple silicon, on which at most %d macOS VMs may run",
			*f.Capacity, node.Name, maxVMs)
	case f.RAMOverride != nil && info.MemoryMB > 0 && *f.RAMOverride > info.MemoryMB:
		return farm.Refused("ram_override cannot be %d MiB: node %s has %d MiB of memory", *f.RAMOverride, node.Name,
			info.MemoryMB)
	case node.CapacityMode == farm.CapacityByResources:
		return nil
	}
	for _, o := range []struct {
		name  string
		value *int
	}{{"vcpu_override", f.VCPUOverride}, {"ram_override", f.RAMOverride}} {
		if o.value != nil && *o.value > 0 {
			return farm.Refused(
				"%s counts in the capacity mode resource only, and node %s is in the mode number; set capacity_mode "+
					"to resource as well", o.name, node.Name)
		}
	}
	return nil
}

// applyDrain begins, changes or ends the drain of a node.
func (f *Config) applyDrain(node *farm.Node, now time.Time) error {
	if f.Drain != nil {
		event := farm.DrainOff
		if *f.Drain {
			event = farm.DrainOn
		}
		node.ApplyEvent(event, "", now)
	}
	if !node.Drain {
		node.DrainInfo = nil
		if f.DrainReason != nil || f.DrainFor != nil {
			return farm.Refused(
				"Node %s is not drained: drain_reason and a drain deadline require drain_mode true",
				node.Name)
		}
		return nil
	}

	d := farm.DrainInfo{Since: now}
	if node.DrainInfo != nil {
		d = *node.DrainInfo
	}
	set(&d.Reason, f.DrainReason)
	if f.DrainFor != nil {
		d.Until = time.Time{}
		if *f.DrainFor > 0 {
			d.Until = now.Add(*f.DrainFor)
		}
	}
	node.DrainInfo = &d
	return nil
}
