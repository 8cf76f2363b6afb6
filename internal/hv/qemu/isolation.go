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
	d.initFirewall(ctx)
	d.initCgroups(ctx)
}

// initFirewall loads the firewall's rules.
func (d *Driver) initFirewall(ctx context.Context) {
	f, err := newFirewall(d)
	if err == nil {
		err = f.loadRules(ctx)
	}
	if err != nil {
		d.firewallErr = err
		d.log.WarnContext(ctx,
			"guests are not isolated from this node: they can reach its services, also those on loopback addresses",
			"why", err, "do", "fix the cause, or run only trusted guests on this node")
		return
	}
	d.firewall = f
	d.addCapability(hv.CanIsolate)
	d.watchers.Go(func() { d.keepFirewall(d.ctx) })
}

// initCgroups prepares the cgroups of the VMs.
func (d *Driver) initCgroups(ctx context.Context) {
	g, err := openCgroups(d.opts, d.host.Accelerator)
	if err == nil {
		err = g.testStart(ctx, d)
	}
	if err != nil {
		d.log.WarnContext(ctx, "resource limits of VMs (memory, threads, CPUs) are not enforced",
			"why", err, "do", "fix the cause, or run only trusted guests on this node")
		return
	}
	d.cgroups = g
	if !d.opts.allowWeakCgroups {
		d.addCapability(hv.CanLimit)
	}
}

// ensureIsolation makes sure that the rules are loaded before a VM is started.
func (d *Driver) ensureIsolation(ctx context.Context) error {
	err := d.firewallErr
	if d.firewall != nil {
		if err = d.firewall.loadRules(ctx); err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "loading the firewall rules that isolate guests from this node failed", "why", err)
		}
	}
	if err != nil && d.opts.RequireIsolation {
		return fmt.Errorf(
			"VM not started: --require-isolation is set, but guests cannot be isolated from the services of this "+
				"node: %w",
			err)
	}
	return nil
}

// keepFirewall restores the rules while VMs run: an operator who loads another firewall may flush ours.
func (d *Driver) keepFirewall(ctx context.Context) {
	t := time.NewTicker(d.opts.firewallInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if !d.hasRunningVM() {
			continue
		}
		if err := d.firewall.loadRules(ctx); err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "loading the firewall rules that isolate guests from this node failed", "why", err)
		}
	}
}

func (d *Driver) hasRunningVM() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.machines {
		if m.currentRun() != nil {
			return true
		}
	}
	return false
}
