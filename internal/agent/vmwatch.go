package agent

import (
	"context"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/hv"
)

// idleListInterval is how often VMs are listed when none is expected.
const idleListInterval = 5 * time.Second

// watchLoop lists all VMs periodically and wakes the workers whose VM differs from the last report.
func (a *Agent) watchLoop(ctx context.Context) error {
	ticker := time.NewTicker(a.opts.VMListInterval)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if !a.expectsVMs() && time.Since(last) < idleListInterval {
			continue
		}
		last = time.Now()
		if err := a.compareVMs(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("listing VMs failed", "error", err)
		}
	}
}

// expectsVMs reports whether any instance has a VM to watch.
func (a *Agent) expectsVMs() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.instances) > 0 || len(a.listedVMs) > 0
}

// compareVMs lists the VMs and compares the list with what was reported.
func (a *Agent) compareVMs(ctx context.Context) error {
	vms, err := a.driverVMs(ctx)
	if err != nil {
		return err
	}
	if a.opts.SleepInhibitor != nil {
		isRunning := func(vm hv.VM) bool { return vm.Status == hv.Running }
		a.opts.SleepInhibitor.SetNeeded(slices.ContainsFunc(vms, isRunning))
	}
	seen := make(map[string]hv.VM, len(vms))
	for _, vm := range vms {
		seen[vm.ID] = vm
	}
	a.mu.Lock()
	a.listedVMs = vms
	list := make([]*instance, 0, len(a.instances))
	for _, in := range a.instances {
		list = append(list, in)
	}
	a.pinOrphansLocked(seen)
	a.mu.Unlock()
	for _, in := range list {
		s := in.snapshot()
		if waitsForVM(s.Phase) && !s.Ending && !sameVM(s.VM, a.currentVMFacts(seen[in.id], s.VM)) {
			in.wakeWorker()
		}
	}
	return nil
}

// driverVMs asks the driver for all VMs. VMs that were removed in the meantime are left out: a VM
// without an instance is reported to the controller and uses capacity there.
func (a *Agent) driverVMs(ctx context.Context) ([]hv.VM, error) {
	limited, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	a.mu.Lock()
	a.endedWhileListing = map[string]bool{}
	a.mu.Unlock()
	vms, err := a.opts.Driver.List(limited)
	a.mu.Lock()
	defer a.mu.Unlock()
	left := a.endedWhileListing
	a.endedWhileListing = nil
	return slices.DeleteFunc(vms, func(vm hv.VM) bool { return left[vm.ID] && a.instances[vm.ID] == nil }), err
}

// removeVMLocked removes the VM of an ended instance from the last list, and from the one that is
// being made.
func (a *Agent) removeVMLocked(id string) {
	if a.endedWhileListing != nil {
		a.endedWhileListing[id] = true
	}
	a.listedVMs = slices.DeleteFunc(slices.Clone(a.listedVMs), func(vm hv.VM) bool { return vm.ID == id })
}

// pinOrphansLocked pins the versions that VMs without an instance are based on, as long as those VMs
// exist.
func (a *Agent) pinOrphansLocked(seen map[string]hv.VM) {
	for id, content := range a.orphanPins {
		if _, there := seen[id]; !there {
			a.opts.Templates.Unpin(content, cache.OrphanHolder(id))
			delete(a.orphanPins, id)
		}
	}
	for id, vm := range seen {
		content := vm.Labels[labelContent]
		if _, known := a.orphanPins[id]; known || content == "" || a.instances[id] != nil {
			continue
		}
		a.opts.Templates.Pin(content, cache.OrphanHolder(id))
		a.orphanPins[id] = content
	}
}
