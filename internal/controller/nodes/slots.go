package nodes

import (
	"cmp"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// Slots are the VMs that a node may run at a time, by what takes their place.
type Slots struct {
	Capacity int
	Running  int // by instances whose VM runs
	Failed   int // by instances in Error whose VM is still there, or may be
	Orphaned int // by VMs without an instance
	Other    int // by instances whose VM is prepared, stopped or ended
}

// Used returns the slots that are taken, which may be more than the capacity.
func (s Slots) Used() int { return s.Running + s.Failed + s.Orphaned + s.Other }

// Free returns the slots that are not taken.
func (s Slots) Free() int { return max(0, s.Capacity-s.Used()) }

// Add returns the slots of two nodes together. The free ones are not a sum of Free where one has more VMs than its
// capacity.
func (s Slots) Add(o Slots) Slots {
	return Slots{
		Capacity: s.Capacity + o.Capacity, Running: s.Running + o.Running, Failed: s.Failed + o.Failed,
		Orphaned: s.Orphaned + o.Orphaned, Other: s.Other + o.Other,
	}
}

// SlotHolder is what takes a slot of a node.
type SlotHolder struct {
	Use      farm.SlotUse      // SlotUnused: the VM has no instance
	Instance *farm.Instance    // nil: the VM has no instance
	Orphan   record.OrphanedVM // with its ID, where Instance is nil
}

// slots returns the slots of a node. It reads sums only.
func (n *Nodes) slots(node *farm.Node, info *farm.NodeInfo, orphaned int) Slots {
	sums := n.db.Tables.Instances.Snapshot().Sum(record.SlotsByNode, node.ID)
	return Slots{
		Capacity: node.VMLimit(info), Running: sums[0], Failed: sums[1], Other: sums[2], Orphaned: orphaned,
	}
}

// Slots returns the slots of all nodes together, and how many of them are free on nodes that accept starts.
func (n *Nodes) Slots() (sum Slots, free int) {
	var all GroupLoad
	for id, node := range n.db.Tables.Nodes.All() {
		all.add(node, n.slotsNow(id, node))
	}
	return all.Slots, all.Free
}

// slotsNow returns the slots of a node with its orphaned VMs.
func (n *Nodes) slotsNow(id string, node *farm.Node) Slots {
	orphans, _ := n.opts.Orphans(id)
	return n.slots(node, n.db.Tables.NodeInfo(id), orphans.VMs)
}

// GroupLoad is the nodes of a group with their slots.
type GroupLoad struct {
	Slots         Slots // of all nodes
	Free          int   // slots of those that accept starts
	Nodes, Active int
}

func (l *GroupLoad) add(node *farm.Node, slots Slots) {
	l.Slots = l.Slots.Add(slots)
	l.Nodes++
	if node.VisibleState() == farm.NodeActive {
		l.Active++
	}
	if node.AcceptsStarts() {
		l.Free += slots.Free()
	}
}

// GroupLoads returns the load of each group that has nodes, by its ID.
func (n *Nodes) GroupLoads() map[string]GroupLoad {
	loads := map[string]GroupLoad{}
	for id, node := range n.db.Tables.Nodes.All() {
		if len(node.Groups) == 0 {
			continue
		}
		slots := n.slotsNow(id, node)
		for _, group := range node.Groups {
			load := loads[group]
			load.add(node, slots)
			loads[group] = load
		}
	}
	return loads
}

// SlotHolders returns what takes the slots of a node: its instances, the oldest first, and then the orphaned VMs that
// are known by name here. More may be known to another replica.
func (n *Nodes) SlotHolders(node *farm.Node) (list []SlotHolder) {
	for _, inst := range n.db.Tables.Instances.Where(record.ByNode, node.ID) {
		if use := inst.SlotUse(); use != farm.SlotUnused {
			list = append(list, SlotHolder{Use: use, Instance: inst})
		}
	}
	for _, vm := range n.opts.OrphanedVMs(node) {
		list = append(list, SlotHolder{Orphan: vm})
	}
	return list
}

// VMID returns the ID of the VM on the node; "" when there is none yet.
func (h SlotHolder) VMID() string {
	switch {
	case h.Instance == nil:
		return cmp.Or(h.Orphan.Held.VMID, h.Orphan.ID)
	case h.Instance.VM != nil:
		return h.Instance.VM.UUID
	}
	return ""
}
