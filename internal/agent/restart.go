package agent

import (
	"context"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/hv"
)

// restartVM ends a VM by force and starts it from its disks. It is repeated after an agent was killed
// during it, unless the VM has been started since then and answers.
func (a *Agent) restartVM(ctx context.Context, in *instance, vm hv.VM) error {
	t := in.snapshot().Task
	restarter, able := a.opts.Driver.(hv.Restarter)
	if !able || !a.host.HasCapability(hv.CanRestart) {
		return a.failTask(ctx, in, "This node's hypervisor (%s) cannot restart VMs", a.host.Driver)
	}
	if t.RunStartedAt.IsZero() && !vm.StartedAt.IsZero() {
		return a.changeTask(ctx, in, func(t *journal.Task) { t.RunStartedAt = journalTime(vm.StartedAt) })
	}
	if vm.Status == hv.Running && !journalTime(vm.StartedAt).Equal(t.RunStartedAt) &&
		a.completeVMStart(ctx, in) == nil {
		return a.concludeRestart(ctx, in, vm)
	}
	again, err := a.restartWith(ctx, in, func(ctx context.Context) (hv.VM, error) {
		return restarter.Restart(ctx, in.id, restartEdit(t.Order.Restart))
	})
	switch {
	case err == nil:
		return a.concludeRestart(ctx, in, again)
	case ctx.Err() != nil:
		return ctx.Err()
	case in.ending.Err() != nil:
		return errEnding
	case again.Status == hv.Running && journalTime(again.StartedAt).Equal(t.RunStartedAt):
		return a.failTask(ctx, in, "The VM was not restarted and runs on: %v", err)
	}
	return a.failRestart(ctx, in, err)
}

func (a *Agent) concludeRestart(ctx context.Context, in *instance, vm hv.VM) error {
	a.log.Info("VM restarted", "instance_id", in.id)
	return a.endTask(ctx, in, func(s *journal.State, t *journal.Task) {
		s.VM, t.Stage = a.currentVMFacts(vm, s.VM), api.TaskDone
	})
}

// failRestart reports that the VM is down; it ends one that is half started first.
func (a *Agent) failRestart(ctx context.Context, in *instance, cause error) error {
	limited, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := a.opts.Driver.Stop(limited, in.id, hv.StopForce); err != nil {
		a.log.Warn("stopping a VM after a failed restart failed", "instance_id", in.id, "error", err)
	}
	vm, err := a.opts.Driver.Get(limited, in.id)
	if err != nil {
		vm = hv.VM{} // it no longer exists
	}
	message := firstBytes("The VM could not be restarted: "+cause.Error(), maxMessageBytes)
	return a.endTask(ctx, in, func(s *journal.State, t *journal.Task) {
		s.Phase, s.Message, s.VM = api.PhaseStopped, message, a.currentVMFacts(vm, s.VM)
		t.Stage, t.Failure = api.TaskFailed, &journal.TaskFailure{Message: message}
	})
}

// restartEdit returns the edit of a VM's last start that a restart order asks for.
func restartEdit(o *api.RestartOrder) func(*hv.Spec) {
	return func(s *hv.Spec) {
		if o.VNCPassword != nil {
			s.VNC = nil
			if *o.VNCPassword != "" {
				s.VNC = &hv.VNC{Password: *o.VNCPassword}
			}
		}
		if o.USB != nil {
			pc := s.EditPC()
			pc.USB = nil
			if *o.USB != "" {
				pc.USB = []hv.USBDevice{{Location: *o.USB}}
			}
		}
	}
}
