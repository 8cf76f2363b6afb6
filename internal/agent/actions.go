package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/failurecause"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/retry"
)

// step carries out one action. It returns when there may be something new to decide; vm is the VM
// as last observed.
type step func(a *Agent, ctx context.Context, in *instance, vm hv.VM) error

var actionSteps = map[action]step{
	doPull:               (*Agent).pullVersion,
	doStart:              (*Agent).startVM,
	doDiscard:            (*Agent).deleteVM,
	doScript:             (*Agent).runStartupScript,
	doConcludeLostScript: (*Agent).concludeLostScript,
	doFailHandler:        (*Agent).runFailHandler,
	doTask:               (*Agent).runTaskStage,
	doTaskLost:           (*Agent).failLostTask,
	doRecordStopped:      (*Agent).recordVMStopped,
	doRecordGone:         (*Agent).recordVMLost,
	doWait:               (*Agent).waitForChange,
	doRemove:             (*Agent).removeVM,
	doAwaitEndAck:        (*Agent).awaitEndAck,
}

const (
	maxMessageBytes    = 4 << 10 // bytes of a message in a status
	removeTimeout      = 2 * time.Minute
	stopTimeout        = 2 * time.Minute
	startTimeoutMargin = 30 * time.Second // in addition to the boot timeout, which the driver enforces
	defaultBootTimeout = 90 * time.Second
)

// pullVersion makes the version present; a termination that is ordered in the meantime cancels it.
func (a *Agent) pullVersion(ctx context.Context, in *instance, _ hv.VM) error {
	err := a.storeAndReport(in, func(s *journal.State) {
		s.Phase, s.Message, in.pullProgress = api.PhasePulling, "", 0
	})
	if err != nil {
		return err
	}
	o := in.order.Start
	ref := cache.Ref{
		Registry: a.registryAddress(o.Registry), TemplateID: o.TemplateID, Name: o.TemplateName,
		Tag: o.Tag, Version: o.Version, ContentID: o.ContentID,
	}
	life, done := in.untilTermination(ctx)
	defer done()
	defer a.cacheJobs.PauseForInstance()()
	err = a.fetchVersion(life, ref, func(at float64) { a.setProgress(in, at) })
	if err != nil && life.Err() == nil {
		return a.failStart(ctx, in, err, farm.StepPull)
	}
	return nil
}

// registryAddress returns the address in an order, or the node's own when the order has none.
func (a *Agent) registryAddress(address string) string {
	if address != "" {
		return address
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.defaultRegistry
}

// Registry returns the address of the registry of this node's cloud; "" when none is known yet.
func (a *Agent) Registry() string { return a.registryAddress("") }

// startVM boots the VM, or waits for one that an earlier agent started.
func (a *Agent) startVM(ctx context.Context, in *instance, _ hv.VM) error {
	err := a.storeAndReport(in, func(s *journal.State) { s.Phase, s.Message = api.PhaseStarting, "" })
	if err != nil {
		return err
	}
	spec, err := a.vmSpec(in)
	if err != nil {
		return a.failStart(ctx, in, err, farm.StepStartVM)
	}
	life, done := in.untilTermination(ctx)
	defer done()
	vm, err := a.bootVM(life, in, spec)
	if err == nil {
		err = farm.MarkFailure(a.growGuestDisk(life, in), farm.FailureConfiguration, farm.StepBoot)
	}
	switch {
	case life.Err() != nil || in.isTakenOver(): // the worker of the start observes the VM
		return nil
	case err != nil:
		a.metrics.starts.Observe(err)
		return a.failStart(ctx, in, fmt.Errorf("start VM: %w", err), farm.StepStartVM)
	}
	a.metrics.starts.Observe(nil)
	a.log.Info("VM started", "instance_id", in.id)
	a.holdStarted(in)
	return a.storeAndReport(in, func(s *journal.State) {
		s.Phase, s.VM = api.PhaseRunning, a.linkVM(vm)
	})
}

// bootVM starts a VM and waits until it has booted.
func (a *Agent) bootVM(ctx context.Context, in *instance, spec hv.Spec) (hv.VM, error) {
	isLazy, err := a.openLazyDisks(ctx, in, &spec)
	switch {
	case err != nil:
		return hv.VM{}, err
	case isLazy:
		return a.startLazily(ctx, in, spec)
	}
	ctx, cancel := context.WithTimeout(ctx, spec.BootTimeout+startTimeoutMargin)
	defer cancel()
	return a.opts.Driver.Start(ctx, spec)
}

// failStart ends a start that failed in a step: it removes the VM first, then reports the failure. If the agent is
// killed in between, the next agent tries the start once more, which is harmless.
func (a *Agent) failStart(ctx context.Context, in *instance, cause error, step farm.FailureStep) error {
	a.log.Warn("starting an instance failed; it goes to Error", "instance_id", in.id, "error", cause)
	err := a.retryUntilDone(ctx, in, "removal of the VM of a failed start", func() error {
		return a.deleteVM(ctx, in, hv.VM{})
	})
	if err != nil {
		return err
	}
	err = a.storeAndReport(in, func(s *journal.State) {
		s.Phase, s.Message, s.VM = api.PhaseFailed, firstBytes(cause.Error(), maxMessageBytes), nil
		s.Failure = failurecause.Of(cause, step)
	})
	if err == nil {
		a.queueFailureLog(in, failedStart, cause.Error())
	}
	return err
}

// retryUntilDone repeats do until it succeeds or the instance is to be terminated.
func (a *Agent) retryUntilDone(ctx context.Context, in *instance, what string, do func() error) error {
	pause := retry.New(retryFirst, retryMax)
	for {
		err := do()
		if err == nil || errors.Is(err, errEnding) {
			return err
		}
		a.log.Error("step failed; retrying", "instance_id", in.id, "what", what, "error", err)
		select {
		case <-in.ending.Done():
			return errEnding
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause.Next()):
		}
	}
}

func (a *Agent) deleteVM(ctx context.Context, in *instance, _ hv.VM) error {
	limited, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	return a.opts.Driver.Delete(limited, in.id)
}

func (a *Agent) recordVMStopped(_ context.Context, in *instance, vm hv.VM) error {
	message, failure := "The VM stopped without being asked to", failurecause.OfStopped(vm)
	if vm.Failure != "" {
		message += ": " + firstBytes(vm.Failure, maxMessageBytes)
	}
	in.mu.Lock()
	loss := in.loss
	in.mu.Unlock()
	if loss != nil {
		message = "The VM was ended: " + firstBytes(loss.Error(), maxMessageBytes)
		failure = failurecause.Of(loss, farm.StepRun)
	}
	a.log.Warn("VM stopped", "instance_id", in.id, "reason", cmp.Or(vm.Failure, message))
	err := a.storeAndReport(in, func(s *journal.State) {
		s.Phase, s.Message, s.VM = api.PhaseStopped, message, a.linkVM(vm)
		s.Failure = failure
	})
	if err == nil && vm.Failure != "" {
		a.queueFailureLog(in, failedRun, message)
	}
	return err
}

func (a *Agent) recordVMLost(_ context.Context, in *instance, _ hv.VM) error {
	a.log.Warn("VM no longer exists", "instance_id", in.id)
	return a.storeAndReport(in, func(s *journal.State) {
		s.Phase, s.Message, s.VM = api.PhaseVanished, "VM no longer exists on its node", factsOfGoneVM(s.VM)
		s.Failure = failurecause.OfLost()
	})
}

// removeVM removes the VM and reports that; it never reports it earlier.
func (a *Agent) removeVM(ctx context.Context, in *instance, _ hv.VM) error {
	in.backgroundCommands.Wait() // a VM may be removed only after its commands returned, which the termination causes
	if err := errors.Join(a.removeSaveDir(ctx, in), a.deleteVM(ctx, in, hv.VM{})); err != nil {
		return fmt.Errorf("remove VM: %w", err)
	}
	if in.snapshot().Silent {
		return a.forgetInstance(in)
	}
	return a.recordEnd(in)
}

// awaitEndAck waits until the controller has received the end; the entry is dropped then.
func (a *Agent) awaitEndAck(ctx context.Context, in *instance, _ hv.VM) error {
	in.mu.Lock()
	over := in.state.Silent || in.ackedNumber >= in.state.Number
	in.mu.Unlock()
	if over {
		return a.forgetInstance(in)
	}
	select {
	case <-in.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failHandlers maps the number in an order to a fail handler.
var failHandlers = map[int]func(ctx context.Context, d hv.Driver, id string) error{
	int(farm.StopVM): func(ctx context.Context, d hv.Driver, id string) error {
		return d.Stop(ctx, id, hv.StopOrderly)
	},
	int(farm.KeepVM):   func(context.Context, hv.Driver, string) error { return nil },
	int(farm.DeleteVM): func(ctx context.Context, d hv.Driver, id string) error { return d.Delete(ctx, id) },
}

// runFailHandler carries out the handler that was ordered for a VM whose monitored script failed.
func (a *Agent) runFailHandler(ctx context.Context, in *instance, _ hv.VM) error {
	life, done := in.untilTermination(ctx)
	defer done()
	limited, cancel := context.WithTimeout(life, stopTimeout)
	defer cancel()
	handler := failHandlers[in.order.Start.Script.OnFailure]
	if handler == nil {
		handler = failHandlers[int(farm.StopVM)]
	}
	err := handler(limited, a.opts.Driver, in.id)
	var vm hv.VM
	if err == nil || errors.Is(err, hv.ErrNotFound) {
		vm, err = a.opts.Driver.Get(limited, in.id)
	}
	switch {
	case life.Err() != nil:
		return nil
	case err != nil && !errors.Is(err, hv.ErrNotFound):
		return fmt.Errorf("get VM after a failed startup script: %w", err)
	}
	return a.storeAndReport(in, func(s *journal.State) {
		s.Phase, s.VM = api.PhaseScriptEnded, a.currentVMFacts(vm, s.VM)
	})
}

// firstBytes shortens a text to its first n bytes.
func firstBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return text[:n] + " ..."
}
