package sched

import (
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// slotCounts are the slots of a node that instances use, by what they use them for. An instance that Place has assigned
// is one of other.
type slotCounts struct{ running, failed, other int }

// add counts a slot, or removes it with -1.
func (c *slotCounts) add(use farm.SlotUse, n int) {
	switch use {
	case farm.SlotRunning:
		c.running += n
	case farm.SlotFailed:
		c.failed += n
	case farm.SlotOther, farm.SlotUnused:
		c.other += n
	}
}

// setSlot changes what a placed instance uses its slot for, which changes the reasons but no capacity.
func (x *Index) setSlot(r *request, to farm.SlotUse) {
	if r.slot == to {
		return
	}
	e := x.usages[r.nodeID]
	e.slots.add(r.slot, -1)
	e.slots.add(to, 1)
	r.slot = to
	x.changeCount++
}

// fullText returns that a node is full and of what, with the numbers that clients see as its slots.
func (n *node) fullText() string {
	var parts []string
	for _, part := range []struct {
		count int
		name  string
	}{
		{n.usage.slots.running, "running"},
		{n.usage.slots.failed, "failed"},
		{n.OrphanedLoad.VMs, "orphaned"},
		{n.usage.slots.other, "in transition"},
	} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.count, part.name))
		}
	}
	switch {
	case len(parts) == 0:
		return "is full"
	case n.CapacityMode == farm.CapacityByResources:
		return "is full: " + strings.Join(parts, ", ")
	}
	return fmt.Sprintf("is full: %s of %d", strings.Join(parts, ", "), n.Capacity)
}
