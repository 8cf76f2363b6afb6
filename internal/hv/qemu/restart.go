package qemu

import (
	"context"
	"fmt"

	"github.com/buildyard/buildyard/internal/hv"
)

var _ hv.Restarter = (*Driver)(nil)

// Restart ends a VM by force and starts it from its disks; a state that it once resumed from is
// used up. An agent that is killed in between leaves it stopped, with its earlier spec.
func (d *Driver) Restart(ctx context.Context, id string, edit func(*hv.Spec)) (hv.VM, error) {
	m, err := d.findMachine(id)
	if err != nil {
		return hv.VM{}, err
	}
	before := m.spec()
	after := before.Clone()
	if edit != nil {
		edit(&after)
	}
	if err := hv.CheckRestart(before, after); err != nil {
		return hv.VM{}, fmt.Errorf("qemu: restart VM %s: %w", id, err)
	}
	if err := d.Stop(ctx, id, hv.StopForce); err != nil {
		return hv.VM{}, err
	}
	return d.Start(ctx, after)
}
