package controller

import (
	"context"
	"errors"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// USB returns the number of devices of each claim name, or location where a claim has no name, on
// all nodes that are not Offline and that the caller sees, and the number that instances use.
func (c *Controller) USB(sees func(node string) bool) map[string]farm.USBCount {
	var nodes []string
	for id, node := range c.tables.Nodes.All() {
		if node.State != farm.NodeOffline && sees(id) {
			nodes = append(nodes, id)
		}
	}
	counts := map[string]farm.USBCount{}
	for _, list := range c.placer.Devices(nodes...) {
		for _, d := range list {
			name := firstOf(d.Name, d.Location)
			n := counts[name]
			if d.Busy {
				n.Busy++
			} else {
				n.Available++
			}
			counts[name] = n
		}
	}
	return counts
}

// Restart requests a forced stop and a new start of an instance's VM from its node.
func (c *Controller) Restart(ctx context.Context, id string, o farm.RestartOptions) error {
	inst, err := c.latest(ctx, id)
	if err != nil {
		return err
	}
	if err := mayBegin(inst, farm.Restart); err != nil {
		return err
	}
	task := &farm.Task{ID: record.NewID(), Kind: farm.TaskRestart, Restart: &o}
	if o.USBDevice == nil {
		return c.begin(ctx, id, farm.Restart, task)
	}
	for attempt := range statusAttempts {
		if attempt > 0 {
			if err := c.db.UpToDate(ctx); err != nil {
				return err
			}
		}
		touch, err := c.placer.ClaimDevice(inst, task.Restart)
		if err != nil {
			return err
		}
		if err = c.begin(ctx, id, farm.Restart, task, touch); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return store.ErrConflict
}
