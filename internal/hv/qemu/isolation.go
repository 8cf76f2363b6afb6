package qemu

import (
	"context"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// detectIsolation determines how far this host can isolate and limit guests. What it cannot do is
// missing in the driver's abilities, and the reason is logged.
func (d *Driver) detectIsolation(ctx context.Context) {
	d.isolate(ctx)
	d.limit(ctx)
}

// isolate loads the firewall's rules.
func (d *Driver) isolate(ctx context.Context) {
	f, err := newFirewall(d)
	if err == nil {
		err = f.load(ctx)
	}
	if err != nil {
		d.unguarded = err
		d.log.WarnContext(ctx,
			"guests are not isolated from this node: they can reach its services, also those on loopback addresses",
			"why", err, "do", "mend that, or let only guests run here that you trust")
		return
	}
	d.firewall = f
	d.able(hv.CanIsolate)
	d.watch.Go(func() { d.guard(d.quit) })
}

// limit prepares the cgroups of the VMs.
func (d *Driver) limit(ctx context.Context) {
	g, err := openCgroups(d.opt, d.host.Accelerator)
	if err == nil {
		err = g.try(ctx, d)
	}
	if err != nil {
		d.log.WarnContext(ctx, "resource limits of VMs (memory, threads, CPUs) are not enforced",
			"why", err, "do", "mend that, or let only guests run here that you trust")
		return
	}
	d.groups = g
	if !d.opt.weakCgroups {
		d.able(hv.CanLimit)
	}
}

// isolated makes sure that the rules are loaded before a VM is started.
func (d *Driver) isolated(ctx context.Context) error {
	err := d.unguarded
	if d.firewall != nil {
		if err = d.firewall.load(ctx); err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "loading the firewall rules that isolate guests from this node failed", "why", err)
		}
	}
	if err != nil && d.opt.RequireIsolation {
		return fmt.Errorf(
			"guests cannot be isolated from the services of this node, which --require-isolation demands: %w",
			err)
	}
	return nil
}

// guard restores the rules while VMs run: an operator who loads another firewall may flush ours.
func (d *Driver) guard(ctx context.Context) {
	t := time.NewTicker(d.opt.guardEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if !d.anyRuns() {
			continue
		}
		if err := d.firewall.load(ctx); err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "loading the firewall rules that isolate guests from this node failed", "why", err)
		}
	}
}

func (d *Driver) anyRuns() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.machines {
		if m.current() != nil {
			return true
		}
	}
	return false
}
