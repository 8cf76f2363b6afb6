package alarms

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	registryTimeout = 5 * time.Second
	maxNodes        = 10 // that have an alarm each
	maxFailures     = 3  // checks of the registry in a row after which it counts as unreachable
)

// Registry is the part of a registry that this package uses.
type Registry interface {
	// DiskInfo returns the free space of the registry's disk.
	DiskInfo(ctx context.Context) (api.DiskInfo, error)
}

// Disks checks the free space of the disks of the registry and the nodes, and thereby whether the
// registry can be reached.
type Disks struct {
	db       record.DB
	registry Registry
	limit    int64 // see DiskLow

	failures int       // successive checks that could not reach the registry; only check uses it
	failing  time.Time // since when

	mu   sync.Mutex
	list []api.Alarm // of the last check
}

// NewDisks returns the check of the disks, with the limit of DiskLow.
func NewDisks(db record.DB, registry Registry, limit int64) *Disks {
	return &Disks{db: db, registry: registry, limit: limit}
}

// Alarms is the Source with the alarms of the last check.
func (d *Disks) Alarms() []api.Alarm {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}

func (d *Disks) check(ctx context.Context) {
	list := append(d.ofRegistry(ctx), d.ofNodes()...)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = list
}

// DiskLow reports whether free space is so short that an operator has to act. On a disk of any size
// that is before the store refuses changes, which it does below an eighth of a small one. More bytes
// free than limit are enough on a disk of any size.
func DiskLow(free, total, limit int64) bool { return total > 0 && free < total/5 && free < limit }

// DiskText returns "1.5 GiB of 20 GiB free".
func DiskText(free, total int64) string {
	return bytesize.Format(free) + " of " + bytesize.Format(total) + " free"
}

// ofRegistry returns the alarm of the registry's disk, or of a registry that cannot be reached.
func (d *Disks) ofRegistry(ctx context.Context) []api.Alarm {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	disk, err := d.registry.DiskInfo(ctx)
	if err != nil {
		return d.unreachable()
	}
	d.failures = 0
	if !DiskLow(disk.Free, disk.Total, d.limit) {
		return nil
	}
	return []api.Alarm{{
		Name:    api.AlarmRegistryDisk,
		Message: "The registry's disk is filling up: " + DiskText(disk.Free, disk.Total),
		Action:  "Delete unused templates, revert unused tags, or add disk space to the registry.",
	}}
}

// unreachable counts a failed check, and returns the alarm of a registry that cannot be reached.
func (d *Disks) unreachable() []api.Alarm {
	if d.failures++; d.failures == 1 {
		d.failing = d.db.Now()
	}
	if d.failures < maxFailures {
		return nil
	}
	return []api.Alarm{{
		Name: api.AlarmRegistryAway, Since: d.failing,
		Message: "The registry cannot be reached: templates cannot be pulled, pushed or listed",
		Action:  "Check that it runs and that the controller can connect to it: buildyard doctor.",
	}}
}

// ofNodes returns an alarm for each node with little free space, and one for those beyond maxNodes.
func (d *Disks) ofNodes() (list []api.Alarm) {
	var low []*farm.NodeInfo
	for _, info := range d.db.Tables.Infos.All() {
		if DiskLow(info.FreeDisk, info.DiskSize, d.limit) {
			low = append(low, info)
		}
	}
	slices.SortFunc(low, func(a, b *farm.NodeInfo) int { return cmp.Compare(a.FreeDisk, b.FreeDisk) })
	for i, info := range low {
		node, _, ok := d.db.Tables.Nodes.Get(info.NodeID)
		if !ok || node.State == farm.NodeOffline {
			continue
		}
		if len(list) == maxNodes {
			return append(list, api.Alarm{
				Name:    api.AlarmNodeDisk,
				Count:   len(low) - i,
				Message: fmt.Sprintf("%d more nodes have little free disk space", len(low)-i),
				Action:  "Show them: buildyard node list -o wide.",
			})
		}
		list = append(list, api.Alarm{
			Name: api.AlarmNodeDisk, Subject: node.ID,
			Message: fmt.Sprintf("The disk of node %s is filling up: %s", node.Name,
				DiskText(info.FreeDisk, info.DiskSize)),
			Action: "Free space on the disk of its VMs and template cache.",
		})
	}
	return list
}
