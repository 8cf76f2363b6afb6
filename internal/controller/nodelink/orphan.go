package nodelink

import (
	"encoding/json"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
)

// orphan is an inventory item of a node without a record.
type orphan struct {
	item    api.InventoryItem
	since   time.Time
	reports int
	asked   time.Time            // when the node was last asked for details of it
	detail  *api.InventoryDetail // nil until it has answered
	size    int                  // of detail, in bytes of JSON
	keeping bool                 // a record is being created for it
}

// unidentified reports whether its details are missing and may still arrive.
func (u orphan) unidentified(now time.Time) bool {
	return u.detail == nil && now.Sub(u.since) < detailTime
}

// mac returns the address that the VM reports.
func (u orphan) mac() (farm.MAC, bool) {
	if u.detail == nil || u.detail.Status.VM == nil {
		return 0, false
	}
	a, err := farm.ParseMAC(u.detail.Status.VM.MAC)
	return a, err == nil
}

// setOrphans takes over the list of orphaned VMs on a node, and returns the ids that are new in it and
// those that are no longer in it.
func (s *session) setOrphans(listed map[string]api.InventoryItem, now time.Time) (added, gone []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		return nil, nil
	}
	for id := range s.orphans {
		if _, still := listed[id]; !still {
			s.dropOrphanLocked(id)
			gone = append(gone, id)
		}
	}
	for id, item := range listed {
		u, known := s.orphans[id]
		if !known && len(s.orphans) >= maxOrphans {
			continue
		}
		if !known {
			s.index.add(id)
			added = append(added, id)
		}
		if !known || u.item.Claim != item.Claim {
			s.orphans[id] = orphan{item: item, since: now}
		}
	}
	s.moreOrphans = len(listed) - len(s.orphans)
	return added, gone
}

// maxOrphans bounds the orphaned VMs that are stored per node. Others are only counted, and are
// stored once these are decided about. A node has at most nodeinput.MaxCapacity instances.
const maxOrphans = nodeinput.MaxCapacity

// setInventory records that the node has sent its inventory, and the number of items.
func (s *session) setInventory(total int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dropped {
		s.vms, s.inventoryAt = total, now
	}
}

// dropOrphanLocked removes an orphan, and the order to remove it.
func (s *session) dropOrphanLocked(id string) {
	delete(s.orphans, id)
	s.index.drop(id)
	if d := s.orders[id]; d.claim == "" {
		delete(s.orders, id)
	}
}

// dropOwnedLocked processes a new record: the VM that its node has under its claim is no longer an
// orphan. The node is asked for its full report again, since what it reported of the VM until now
// had no record.
func (s *session) dropOwnedLocked(inst *farm.Instance) {
	if u, ok := s.orphans[inst.ID]; ok && inst.Holds(u.item.Claim) && u.item.InstanceID == inst.ID {
		s.dropOrphanLocked(inst.ID)
		s.infoHash, s.inventoryHash = "", ""
	}
}

const (
	askAfter = 5 * time.Second  // a record may be a moment behind its VM
	askAgain = 30 * time.Second // an older agent does not answer
	maxAsked = 100              // in one response
)

// requestedDetails returns the orphaned VMs whose details the node is to be asked for now.
func (s *session) requestedDetails(now time.Time) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, u := range s.orphans {
		if len(ids) == maxAsked {
			break
		}
		if u.detail == nil && now.Sub(u.since) >= askAfter && now.Sub(u.asked) >= askAgain {
			u.asked = now
			s.orphans[id] = u
			ids = append(ids, id)
		}
	}
	return ids
}

// Limits of the stored details of orphaned VMs, in bytes of JSON.
const (
	maxDetail  = 16 << 10 // of one
	maxDetails = 4 << 20  // of all on one node
)

// addDetails stores the details of orphaned VMs that a node was asked for. Too large ones do not
// come from a genuine agent and are ignored.
func (s *session) addDetails(details []api.InventoryDetail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes := 0
	for _, u := range s.orphans {
		bytes += u.size
	}
	for _, d := range details {
		if u, ok := s.orphans[d.ID]; ok && !u.asked.IsZero() {
			raw, err := json.Marshal(d)
			if err != nil || len(raw) > maxDetail || bytes-u.size+len(raw) > maxDetails {
				continue
			}
			bytes += len(raw) - u.size
			u.detail, u.size = &d, len(raw)
			s.orphans[d.ID] = u
		}
	}
}

// orphanLoadLocked returns the load of the orphaned VMs. One without details yet counts as a small
// one.
func (s *session) orphanLoadLocked() (load sched.Load) {
	load.VMs, load.VCPU = s.moreOrphans, s.moreOrphans
	for _, u := range s.orphans {
		load.VMs++
		vcpu := 1
		if u.detail != nil && u.detail.Status.VM != nil {
			vcpu = max(1, min(u.detail.Status.VM.CPUs, nodeinput.MaxVCPUs))
			load.MemoryMB += max(0, min(u.detail.Status.VM.MemoryMB, 1<<24))
		}
		load.VCPU += vcpu
	}
	return load
}
