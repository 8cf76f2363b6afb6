package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/lazyfill"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

// A VM may start before all of its version is here: a process serves its disks, see cache.LazyPulls. The VM is moved to
// the files once they are complete, and ended when they cannot be completed.

const (
	lazyInterval = 500 * time.Millisecond
	lazyPoll     = 100 * time.Millisecond
	moveTimeout  = 30 * time.Second
	// maxBootWait is by how much waits for the registry extend the time limit of a boot.
	maxBootWait = 10 * time.Minute
	// maxRegistryWait is how long a read of a running VM waits for the registry before the VM is ended. QEMU waits
	// about as long.
	maxRegistryWait = time.Hour
)

// fetchVersion makes a version present, or as much of it as a VM needs to start.
func (a *Agent) fetchVersion(ctx context.Context, ref cache.Ref, progress func(float64)) error {
	if a.opts.LazyTemplates != nil {
		return a.opts.LazyTemplates.FetchStartable(ctx, ref, progress)
	}
	return a.opts.Templates.Fetch(ctx, ref, progress)
}

// isStartable reports whether VMs can start from a version.
func (a *Agent) isStartable(contentID string) bool {
	if a.opts.LazyTemplates != nil {
		return a.opts.LazyTemplates.IsStartable(contentID)
	}
	return a.opts.Templates.Has(contentID)
}

// openLazyDisks makes a VM read the disks that are not here as a whole from their sockets. It reports whether there are
// any.
func (a *Agent) openLazyDisks(ctx context.Context, in *instance, spec *hv.Spec) (bool, error) {
	if a.opts.LazyTemplates == nil {
		return false, nil
	}
	processFile, _ := a.opts.Driver.(hv.DiskMover).SocketUser(in.id)
	disks, err := a.opts.LazyTemplates.ServeDisks(ctx, in.order.Start.ContentID, in.id, processFile)
	if err != nil || len(disks) == 0 {
		return false, err
	}
	for i := range spec.Disks {
		if d, isLazy := disks[filepath.Base(spec.Disks[i].Path)]; isLazy {
			spec.Disks[i].Socket, spec.Disks[i].Bytes = d.Socket, d.Bytes
		}
	}
	return true, nil
}

// startLazily starts a VM of which parts of the disks are missing. The time limit of its boot stands still while a read
// of the version's disks waits.
func (a *Agent) startLazily(ctx context.Context, in *instance, spec hv.Spec) (hv.VM, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit, content := spec.BootTimeout, in.order.Start.ContentID
	go func() {
		ticker := time.NewTicker(lazyPoll)
		defer ticker.Stop()
		begun, waited := time.Now(), time.Duration(0)
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			state, isLazy := a.lazyState(content)
			switch {
			case isLazy && lazyLoss(state, in.id) != nil:
				cancel(lazyLoss(state, in.id))
			case isLazy && isWaiting(state, in.id) && waited < maxBootWait:
				waited += lazyPoll
			case time.Since(begun) > limit+waited:
				cancel(fmt.Errorf("%w; %s of the time, it waited for the registry", hv.ErrBootTimeout,
					waited.Round(time.Second)))
			}
		}
	}()
	spec.BootTimeout += maxBootWait + startTimeoutMargin
	vm, err := a.opts.Driver.Start(ctx, spec)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	if err == nil {
		if err := a.opts.LazyTemplates.MarkBooted(ctx, content); err != nil {
			a.log.Warn("what the boot of a VM read is not recorded", "vm", in.id, "error", err)
		}
	}
	return vm, err
}

// isWaiting reports whether a VM waits for parts of its disks. A process that is started again opens the pull first.
func isWaiting(s cache.LazyState, vm string) bool {
	if s.Phase == lazyfill.Opening {
		return true
	}
	if _, reads := s.Waits[vm]; !reads {
		return false
	}
	for _, d := range s.Disks {
		if d.Readers > 0 {
			return true
		}
	}
	return false
}

// lazyLoss returns why a VM can no longer use a version that is being pulled; nil if it can. A VM that waits for
// nothing can, also while its registry is away, unless the process was started again since then: it answers no read
// before it has opened the pull.
func lazyLoss(s cache.LazyState, vm string) error {
	switch since, waits := s.Waits[vm]; {
	case s.Phase == lazyfill.Failed:
		return fmt.Errorf("the rest of the template cannot be pulled: %w", s.Failure())
	case s.Phase == lazyfill.Opening:
		return registryLoss(s, s.Waiting)
	case waits:
		return registryLoss(s, since)
	}
	return nil
}

// registryLoss returns an error if the registry sent nothing for too long.
func registryLoss(s cache.LazyState, since time.Time) error {
	if since.IsZero() || time.Since(since) <= maxRegistryWait {
		return nil
	}
	return farm.MarkFailure(fmt.Errorf("the VM needs more of the template, and its registry sent none for %s: %s",
		maxRegistryWait, s.Problem), farm.FailureRegistry, farm.StepPull)
}

// lazyState returns how far the lazy pull of a version is; false when none runs.
func (a *Agent) lazyState(contentID string) (cache.LazyState, bool) {
	if a.opts.LazyTemplates == nil {
		return cache.LazyState{}, false
	}
	for _, s := range a.opts.LazyTemplates.LazyPulls() {
		if s.ContentID == contentID {
			return s, true
		}
	}
	return cache.LazyState{}, false
}

// diskFills returns how much of their disks is here, of the VMs whose version is still being pulled.
func (a *Agent) diskFills(now time.Time) map[string]api.DiskFill {
	if a.opts.LazyTemplates == nil {
		return nil
	}
	fills := map[string]api.DiskFill{}
	for _, s := range a.opts.LazyTemplates.LazyPulls() {
		f := api.DiskFill{Rate: int64(s.Rate), Problem: s.Problem}
		for _, d := range s.Disks {
			f.Bytes, f.Total = f.Bytes+d.Bytes, f.Total+d.Total
		}
		if s.IsComplete || f.Total == 0 && f.Problem == "" {
			continue
		}
		if f.Total > 0 {
			f.Fraction = roundToPercent(float64(f.Bytes) / float64(f.Total))
		}
		for vm := range s.VMs {
			f.Waiting = 0
			since, waits := s.Waits[vm]
			if s.Phase == lazyfill.Opening { // and until it has opened the pull, no read is answered
				since, waits = s.Waiting, !s.Waiting.IsZero()
			}
			if waits {
				f.Waiting = int(now.Sub(since) / time.Second)
			}
			fills[vm] = f
		}
	}
	return fills
}

// lazyLoop moves VMs to the files of versions of which all is here now, and ends VMs whose version cannot be completed.
func (a *Agent) lazyLoop(ctx context.Context) error {
	if a.opts.LazyTemplates == nil {
		return nil
	}
	ticker := time.NewTicker(lazyInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, s := range a.opts.LazyTemplates.LazyPulls() {
			for vm := range s.VMs {
				var err error
				if loss := lazyLoss(s, vm); s.IsComplete {
					err = a.moveVM(ctx, s.ContentID, vm)
				} else if loss != nil {
					err = a.endLazyVM(ctx, s, vm, loss)
				}
				if err != nil && ctx.Err() == nil {
					a.log.Warn("a VM still reads from the process that pulled its template; retrying", "vm", vm,
						"error", err)
				}
			}
		}
	}
}

// moveVM makes a VM read from the files of its version. A VM that does not exist yet is moved later.
func (a *Agent) moveVM(ctx context.Context, contentID, vm string) error {
	config, _, err := a.opts.Templates.Config(contentID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	for i := range config.HardDrives {
		err := a.opts.Driver.(hv.DiskMover).UseFile(ctx, vm, i)
		if errors.Is(err, hv.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	a.log.Info("a VM reads from the files of its template now", "vm", vm)
	return a.opts.LazyTemplates.ReleaseDisks(ctx, contentID, vm)
}

// endLazyVM ends a VM whose disks cannot be completed, and closes its disks. One that starts is ended by its start.
// Where the pull has failed, the disks of a VM that is gone are closed as well: the next pull begins without them.
func (a *Agent) endLazyVM(ctx context.Context, s cache.LazyState, vm string, loss error) error {
	if in := a.instance(vm); in != nil {
		phase := in.snapshot().Phase
		if phase == api.PhaseStarting || waitsForVM(phase) {
			in.mu.Lock()
			in.loss = loss
			in.mu.Unlock()
		}
		if phase == api.PhaseStarting || !waitsForVM(phase) && s.Phase != lazyfill.Failed {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	if err := a.opts.Driver.Stop(ctx, vm, hv.StopForce); err != nil && !errors.Is(err, hv.ErrNotFound) {
		return err
	}
	return a.opts.LazyTemplates.ReleaseDisks(ctx, s.ContentID, vm)
}

// awaitFiles waits until a VM reads from the files of its version only: before, it cannot be saved.
func (a *Agent) awaitFiles(ctx context.Context, in *instance) error {
	return a.awaitLazyPull(ctx, in, func(state cache.LazyState) bool {
		_, reads := state.VMs[in.id]
		hasAnswered := state.PID != 0 // since the agent started
		return hasAnswered && !reads
	})
}

// awaitDescription waits until the version of a VM can be described: just after the start of the agent, the process
// that an earlier one has started for it has not answered yet.
func (a *Agent) awaitDescription(ctx context.Context, in *instance) error {
	return a.awaitLazyPull(ctx, in, func(cache.LazyState) bool { return a.isStartable(in.order.Start.ContentID) })
}

// awaitLazyPull waits until the lazy pull of a VM's version has come so far, or there is none.
func (a *Agent) awaitLazyPull(ctx context.Context, in *instance, hasComeSoFar func(cache.LazyState) bool) error {
	for {
		state, isLazy := a.lazyState(in.order.Start.ContentID)
		if !isLazy || hasComeSoFar(state) {
			return nil
		}
		if err := cmp.Or(lazyLoss(state, in.id), registryLoss(state, state.Waiting)); err != nil {
			return err
		}
		select {
		case <-time.After(lazyPoll):
		case <-in.ending.Done():
			return errEnding
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
