package agent

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// idleLook is how often the driver is asked when no VM is expected.
const idleLook = 5 * time.Second

// watchLoop looks at all VMs again and again and wakes the workers whose VM is not
// as it was last reported.
func (a *Agent) watchLoop(ctx context.Context) error {
	ticker := time.NewTicker(a.opts.WatchEvery)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if !a.expectsVMs() && time.Since(last) < idleLook {
			continue
		}
		last = time.Now()
		if err := a.look(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("VMs cannot be listed", "error", err)
		}
	}
}

// expectsVMs says whether any instance has a VM to watch.
func (a *Agent) expectsVMs() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.instances) > 0 || len(a.vms) > 0
}

// look takes a new list of the VMs and compares it with what was reported.
func (a *Agent) look(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	vms, err := a.opts.Driver.List(limited)
	if err != nil {
		return err
	}
	seen := make(map[string]hv.VM, len(vms))
	for _, vm := range vms {
		seen[vm.ID] = vm
	}
	a.mu.Lock()
	a.vms = vms
	list := make([]*instance, 0, len(a.instances))
	for _, in := range a.instances {
		list = append(list, in)
	}
	a.straysLocked(seen)
	a.mu.Unlock()
	for _, in := range list {
		s := in.snapshot()
		if waitsForVM(s.Phase) && !s.Ending && !sameVM(s.VM, a.facts(seen[in.id], s.VM)) {
			in.poke()
		}
	}
	return nil
}

// straysLocked holds the versions that VMs without an instance stand on, for as
// long as those VMs are there.
func (a *Agent) straysLocked(seen map[string]hv.VM) {
	for id, content := range a.strays {
		if _, there := seen[id]; !there {
			a.opts.Templates.Unpin(content, "vm:"+id)
			delete(a.strays, id)
		}
	}
	for id, vm := range seen {
		content := vm.Labels[labelContent]
		if _, known := a.strays[id]; known || content == "" || a.instances[id] != nil {
			continue
		}
		a.opts.Templates.Pin(content, "vm:"+id)
		a.strays[id] = content
	}
}
