package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// AlarmSource returns the alarms that are active. It is called for every status and must not wait:
// slow checks run elsewhere and are cached. Since is filled in by the controller.
//
// To add an alarm of the controller, add its source to sources; to add one of something outside of
// it, such as the settings of the process, pass its source in Options.Alarms.
type AlarmSource func() []api.Alarm

func (c *Controller) sources() []AlarmSource {
	return slices.Concat([]AlarmSource{
		c.Link.Orphans.Alarms,
		c.packageAlarms,
		c.licenseAlarms,
		c.Events.Alarms,
		c.diskAlarms.alarms,
	}, c.opts.Alarms)
}

// alarmLog stores since when each alarm has been active.
type alarmLog struct {
	mu    sync.Mutex
	since map[alarmKey]time.Time
}

type alarmKey struct{ name, subject string }

// stamp fills in Since of every alarm, removes those that ended, and returns the new ones.
func (l *alarmLog) stamp(list []api.Alarm, now time.Time) (fresh []api.Alarm) {
	l.mu.Lock()
	defer l.mu.Unlock()
	holds := make(map[alarmKey]time.Time, len(list))
	for i := range list {
		key := alarmKey{list[i].Name, list[i].Subject}
		since, known := l.since[key]
		if !known {
			since = now
		}
		holds[key], list[i].Since = since, since
		if !known {
			fresh = append(fresh, list[i])
		}
	}
	l.since = holds
	return fresh
}

// Alarms returns the active alarms, which require an operator.
func (c *Controller) Alarms() []api.Alarm {
	var list []api.Alarm
	for _, source := range c.sources() {
		list = append(list, source()...)
	}
	for _, a := range c.alarmLog.stamp(list, c.now()) {
		c.log.Warn("alarm raised", "alarm", a.Name, "subject", a.Subject, "message", a.Message)
	}
	return list
}

const (
	alarmLookEvery = 10 * time.Second // also when no client requests the status
	diskAskTimeout = 5 * time.Second
)

// watchAlarms keeps the alarms of disks up to date and logs when alarms begin, until ctx ends.
func (c *Controller) watchAlarms(ctx context.Context) {
	tick := time.NewTicker(alarmLookEvery)
	defer tick.Stop()
	for {
		c.diskAlarms.set(append(c.registryDiskAlarms(ctx), c.nodeDiskAlarms()...))
		c.Alarms()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// alarmCache holds the results of slow alarm checks.
type alarmCache struct {
	mu   sync.Mutex
	list []api.Alarm
}

func (a *alarmCache) set(list []api.Alarm) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = list
}

func (a *alarmCache) alarms() []api.Alarm {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.list)
}

func (c *Controller) packageAlarms() []api.Alarm {
	return alarmOf(api.AlarmPackages, c.opts.Packages.Problem(), "Look at the directory of the agent packages.")
}

func (c *Controller) licenseAlarms() []api.Alarm {
	return alarmOf(api.AlarmLicense, c.License.Alarm(), "Install a license that is valid (SVC_LICENSE_FILE).")
}

// alarmOf returns an alarm with a message; none without one.
func alarmOf(name, message, action string) []api.Alarm {
	if message == "" {
		return nil
	}
	return []api.Alarm{{Name: name, Message: message, Action: action}}
}

// DiskLow reports whether free space is so short that an operator has to act. On a disk of any size
// that is before the store refuses changes, which it does below an eighth of a small one.
func DiskLow(free, total int64) bool { return total > 0 && free < total/5 && free < diskLowBytes }

const diskLowBytes = 10 << 30

// maxAlarms bounds how many nodes the status names.
const maxAlarms = 10

// DiskText returns "X MiB of Y MiB free".
func DiskText(free, total int64) string {
	const mib = 1 << 20
	return fmt.Sprintf("%d MiB of %d MiB free", free/mib, total/mib)
}

func (c *Controller) registryDiskAlarms(ctx context.Context) []api.Alarm {
	ctx, cancel := context.WithTimeout(ctx, diskAskTimeout)
	defer cancel()
	disk, err := c.opts.Registry.Disk(ctx)
	if err != nil || !DiskLow(disk.Free, disk.Total) {
		return nil
	}
	return alarmOf(api.AlarmRegistryDisk, "The registry's disk is filling up: "+DiskText(disk.Free, disk.Total),
		"Delete unused templates, revert unused tags, or add disk space to the registry.")
}

// nodeDiskAlarms returns an alarm for each node with little free space, maxAlarms at most.
func (c *Controller) nodeDiskAlarms() (list []api.Alarm) {
	var low []*farm.NodeInfo
	for _, info := range c.tables.Infos.All() {
		if DiskLow(info.FreeDisk, info.DiskSize) {
			low = append(low, info)
		}
	}
	slices.SortFunc(low, func(a, b *farm.NodeInfo) int { return int(min(max(a.FreeDisk-b.FreeDisk, -1), 1)) })
	for i, info := range low {
		node, _, ok := c.tables.Nodes.Get(info.NodeID)
		if !ok || node.State == farm.NodeOffline {
			continue
		}
		message := fmt.Sprintf("The disk of node %s is filling up: %s", node.Name,
			DiskText(info.FreeDisk, info.DiskSize))
		if len(list) == maxAlarms {
			message = fmt.Sprintf("%d more nodes have little free disk space", len(low)-i)
			return append(list, alarmOf(api.AlarmNodeDisk, message, "Show them: buildyard node list -o wide.")...)
		}
		a := api.Alarm{
			Name: api.AlarmNodeDisk, Subject: node.ID, Message: message,
			Action: "Free space on the disk of its VMs and template cache.",
		}
		list = append(list, a)
	}
	return list
}
