package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

var _ hv.Saver = (*Driver)(nil)

// stateFdName is the name that QEMU knows an open state file by.
const stateFdName = "state"

// Save exports a VM's changes, and with spec.Suspend its state. Delete ends it.
func (d *Driver) Save(ctx context.Context, id string, spec hv.SaveSpec) (hv.SaveResult, error) {
	if err := spec.Validate(); err != nil {
		return hv.SaveResult{}, fmt.Errorf("qemu: %w", err)
	}
	if spec.Suspend && !d.host.HasCapability(hv.CanSuspend) {
		return hv.SaveResult{}, hv.RefusalSuspendPC.Error("qemu")
	}
	m, err := d.findMachine(id)
	if err != nil {
		return hv.SaveResult{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(m.deleteCtx, func() { cancel(errVMDeleted) }) //nolint:contextcheck // a removal ends a save too
	defer stop()
	s, err := m.save(ctx, spec)
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errVMDeleted) {
			err = cause
		}
		return hv.SaveResult{}, fmt.Errorf("qemu: save VM %s: %w", id, err)
	}
	return s, nil
}

// save runs in one goroutine at a time.
func (m *machine) save(ctx context.Context, spec hv.SaveSpec) (hv.SaveResult, error) {
	if err := m.saveLock.lock(ctx); err != nil {
		return hv.SaveResult{}, err
	}
	defer m.saveLock.unlock()
	m.mu.Lock()
	r, started := m.run, m.config.Spec
	m.mu.Unlock()
	switch {
	case m.driver.ctx.Err() != nil:
		return hv.SaveResult{}, errClosed
	case m.resumes(started):
		return hv.SaveResult{}, errors.New("the VM has not finished its start from the saved state")
	case r != nil && slices.ContainsFunc(started.Disks, func(d hv.Disk) bool { return d.Socket != "" }):
		return hv.SaveResult{}, hv.ErrDiskIncomplete
	case r == nil && spec.Suspend:
		return hv.SaveResult{}, hv.ErrNotRunning
	case r == nil:
		return m.exportStopped(ctx, spec)
	}
	if err := m.endSave(ctx, r, nil); err != nil { // the save of an earlier agent
		return hv.SaveResult{}, err
	}
	if spec.Suspend {
		return m.saveSuspended(ctx, r, spec)
	}
	return m.saveStopped(ctx, r, spec)
}

var errVMDeleted = errors.New("the VM is being removed")

// saveStopped shuts the guest down and exports its disks.
func (m *machine) saveStopped(ctx context.Context, r *run, spec hv.SaveSpec) (hv.SaveResult, error) {
	if err := m.writeStopIntent(runEnd{}); err != nil { // the disk would be too full for the guest's last writes, too
		return hv.SaveResult{}, errors.Join(err, m.clearStopIntent(r))
	}
	if !m.shutDown(ctx, r) {
		err := cmp.Or(ctx.Err(), errors.New("the guest did not shut down in time"))
		return hv.SaveResult{}, errors.Join(err, m.clearStopIntent(r))
	}
	// A guest may end in another way while it shuts down: the node's disk is full, QEMU was killed.
	// Its disks are incomplete then.
	if cause := r.reportedCause(); cause != fatalStates["shutdown"] {
		return hv.SaveResult{}, fmt.Errorf("the shutdown of the guest did not finish: %s",
			cmp.Or(cause.text, "QEMU ended"))
	}
	return m.exportStopped(ctx, spec)
}

// exportStopped exports the disks of a VM that does not run.
func (m *machine) exportStopped(ctx context.Context, spec hv.SaveSpec) (hv.SaveResult, error) {
	lock, err := lockWithin(ctx, m.dir, lockTimeout)
	if err != nil {
		return hv.SaveResult{}, err
	}
	defer lock.Close()
	if err := m.endSaveOfStopped(); err != nil {
		return hv.SaveResult{}, err
	}
	return m.finishExport(ctx, spec, hv.SaveResult{}, m.generations())
}

// finishExport writes the deltas of these generations and reports the last steps.
func (m *machine) finishExport(
	ctx context.Context, spec hv.SaveSpec, s hv.SaveResult, generations []int,
) (hv.SaveResult, error) {
	err := spec.ReportStep(hv.SavedGuest)
	if err == nil {
		s.Disks, err = m.exportDeltas(ctx, spec.Dir, generations)
	}
	if err == nil {
		err = spec.ReportStep(hv.SavedDisks)
	}
	if err == nil {
		return s, nil
	}
	for _, d := range s.Disks {
		err = errors.Join(err, removeFile(d.Path))
	}
	return hv.SaveResult{}, err
}

// saveSuspended freezes disks and memory at one instant. Whatever fails, and wherever, the guest is
// resumed.
func (m *machine) saveSuspended(ctx context.Context, r *run, spec hv.SaveSpec) (s hv.SaveResult, err error) {
	frozen, path := m.generations(), filepath.Join(spec.Dir, stateFile)
	s = hv.SaveResult{State: path, Requirements: m.requirements()}
	if s.Requirements.Layout == "" {
		return s, hv.RefusedError("it was started by an agent that could not save; stop and start it first")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeFile(path))
		}
	}()
	state, err := createFile(path)
	if err != nil {
		return s, err
	}
	defer state.Close()
	paused, err := m.writeSavedState(ctx, r, spec, state)
	undo := context.WithoutCancel(ctx)
	if err == nil {
		if lost := r.resumeGuest(undo); lost != nil { // it is retried below, and the result there decides
			m.driver.log.Info("resuming a VM after its save failed; retrying", "vm", m.id, "error", lost)
		}
		s.PausedFor = time.Since(paused)
	}
	if err = m.endSave(undo, r, err); err == nil {
		err = state.Sync()
	}
	if err != nil {
		return s, err
	}
	return m.finishExport(ctx, spec, s, frozen)
}

// resumeGuest ends the pause of a guest whose state is complete.
func (r *run) resumeGuest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endSaveTimeout)
	defer cancel()
	q, err := r.awaitMonitor(ctx)
	if err != nil {
		return err
	}
	return continueVM(ctx, q)
}

// writeSavedState runs the save up to the complete state in its file. It returns since when the VM is
// paused, as it still is then.
func (m *machine) writeSavedState(
	ctx context.Context, r *run, spec hv.SaveSpec, state *os.File,
) (paused time.Time, err error) {
	q, err := r.awaitMonitor(ctx)
	if err == nil {
		err = checkRunning(ctx, q)
	}
	if err != nil {
		return paused, err
	}
	generation, disks, err := m.beginSave(ctx)
	if err != nil {
		return paused, err
	}
	for _, step := range []struct {
		name hv.SaveStep
		do   func() error
	}{
		{hv.SavePrepared, func() error { return m.passSaveFiles(ctx, q, generation, state) }},
		{hv.SavePaused, func() error { paused = time.Now(); return q.call(ctx, "stop", nil, nil) }},
		{hv.SaveFrozen, func() error { return addOverlays(ctx, q, disks, generation) }},
		{hv.SavedState, func() error { return r.migrate(ctx, q, "migrate", stateFdName) }},
	} {
		if err := step.do(); err != nil {
			return paused, err
		}
		if err := spec.ReportStep(step.name); err != nil {
			return paused, err
		}
	}
	return paused, nil
}

// checkRunning refuses a guest that is already paused, or has failed.
func checkRunning(ctx context.Context, q *qmpConn) error {
	state, err := runState(ctx, q)
	if err != nil {
		return err
	}
	if state != "running" {
		return fmt.Errorf("the guest is not running: its QEMU state is %q", state)
	}
	return nil
}

// overlayFdSet returns the number under which QEMU gets an overlay while it runs. Those of its command
// line are far below; a generation is never used twice.
func overlayFdSet(disk, generation int) int { return generation*1000 + disk + 500 }

// passSaveFiles passes the next overlays and the state's file to QEMU.
func (m *machine) passSaveFiles(ctx context.Context, q *qmpConn, generation int, state *os.File) error {
	m.mu.Lock()
	disks := len(m.config.Spec.Disks)
	m.mu.Unlock()
	for i := range disks {
		set := overlayFdSet(i, generation)
		for _, mode := range []int{os.O_RDWR, os.O_RDONLY} {
			f, err := os.OpenFile(m.overlayPath(i, generation), mode, 0)
			if err != nil {
				return err
			}
			err = q.callWithFile(ctx, "add-fd", map[string]int{"fdset-id": set}, f)
			_ = f.Close()
			if err != nil {
				return err
			}
		}
		node := overlayNode(i, generation, fmt.Sprintf("/dev/fdset/%d", set), m.driver.opts.UnsafeCache)
		if err := q.call(ctx, "blockdev-add", node, nil); err != nil {
			return err
		}
	}
	if err := m.unplugUSB(ctx, q); err != nil { // tryEndSave plugs it in again
		return err
	}
	transfer, err := queryMigration(ctx, q)
	if err != nil {
		return err
	}
	if len(transfer.Blocked) > 0 {
		return hv.RefusedError("its memory cannot be saved: %s", strings.Join(transfer.Blocked, "; "))
	}
	// Otherwise QEMU would limit itself to 128 MiB/s, and the guest would be paused longer.
	if err := q.call(ctx, "migrate-set-parameters", map[string]int64{"max-bandwidth": 1 << 40}, nil); err != nil {
		return err
	}
	return q.callWithFile(ctx, "getfd", map[string]string{"fdname": stateFdName}, state)
}

// addOverlays adds the next overlays on top of all disks, or of none.
func addOverlays(ctx context.Context, q *qmpConn, tops []topOverlay, generation int) error {
	actions := make([]any, len(tops))
	for i, t := range tops {
		actions[i] = map[string]any{"type": "blockdev-snapshot", "data": map[string]string{
			"node": overlayName(t.disk, t.generation), "overlay": overlayName(t.disk, generation),
		}}
	}
	return q.call(ctx, "transaction", map[string]any{"actions": actions}, nil)
}

// migrate runs "migrate" or "migrate-incoming" over an open file to its end.
func (r *run) migrate(ctx context.Context, q *qmpConn, command, fd string) error {
	if err := q.call(ctx, command, map[string]string{"uri": "fd:" + fd}, nil); err != nil {
		return err
	}
	for {
		s, err := queryMigration(ctx, q)
		switch {
		case err != nil:
			return err
		case s.Status == "completed":
			return nil
		case s.Status == "failed" || s.Status == "cancelled":
			return fmt.Errorf("saving the VM state failed: %s: %s", s.Status, s.ErrorText)
		}
		select {
		case <-r.exited:
			return errProcessGone
		default:
		}
		if err := sleep(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

// migrationStatus is the status of the transfer of a state.
type migrationStatus struct {
	Status    string `json:"status"` // "" = there was none
	ErrorText string `json:"error-desc"`

	Blocked []string `json:"blocked-reasons"` // why none can be started
}

func (s migrationStatus) hasEnded() bool {
	return s.Status == "" || s.Status == "completed" || s.Status == "failed" || s.Status == "cancelled"
}

func queryMigration(ctx context.Context, q *qmpConn) (s migrationStatus, err error) {
	err = q.call(ctx, "query-migrate", nil, &s)
	return s, err
}
