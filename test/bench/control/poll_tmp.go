package main

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/load"
)

func (o *observer) poll(ctx context.Context, c *load.Client) error {
	for ctx.Err() == nil {
		items, err := c.List(ctx)
		if err != nil {
			return err
		}
		o.mu.Lock()
		here := map[string]bool{}
		for _, it := range items {
			here[it.InstanceID] = true
			o.set([]byte(it.InstanceID), stateOf{it.VM.NodeID != "" || it.VM.InstanceState != "Scheduling", it.VM.InstanceState == "Started", it.VM.InstanceState == "Error"})
		}
		for id, st := range o.seen {
			if !here[id] {
				o.count(st, -1)
				delete(o.seen, id)
			}
		}
		o.synced = true
		o.tell()
		o.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
	return ctx.Err()
}
