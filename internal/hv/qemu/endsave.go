package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// endSaveTimeout limits how long a save waits until its effects are undone.
	endSaveTimeout = 30 * time.Second
	// endSaveRetryDelay is the pause before another try, when the save has returned.
	endSaveRetryDelay = time.Second
	// endSaveAttempts is how often the save itself tries: a monitor that was just lost is available
	// again after the pause of relink.
	endSaveAttempts = 3
	reconnectDelay  = 50 * time.Millisecond
)

// endSave ends what a save that ended with err has begun. What cannot be ended now is retried for
// as long as QEMU lives.
func (m *machine) endSave(ctx context.Context, r *run, err error) error {
	ctx, cancel := context.WithTimeout(ctx, endSaveTimeout)
	defer cancel()
	serr := m.tryEndSave(ctx, r)
	for try := 1; try < endSaveAttempts && serr != nil && !errors.Is(serr, errProcessGone) &&
		sleep(ctx, reconnectDelay) == nil; try++ {
		serr = m.tryEndSave(ctx, r)
	}
	switch {
	case serr == nil:
		return err
	case errors.Is(serr, errProcessGone): // what is left is for its next start
		return cmp.Or(err, serr)
	}
	if m.driver.ctx.Err() == nil {
		m.driver.watchers.Go(func() { r.endLeftoverSave(m.driver.ctx) })
	}
	return errors.Join(err, fmt.Errorf("undo the save: %w", serr))
}

// tryEndSave ends whatever a save has begun: it cancels a transfer, resumes the guest, and records
// the overlays that QEMU writes to. It asks QEMU how far the save came, so it serves a save that
// succeeded or failed, and one whose agent was killed at any step. The caller holds m.saving.
func (m *machine) tryEndSave(ctx context.Context, r *run) error {
	m.mu.Lock()
	generation := m.config.Saving
	m.mu.Unlock()
	if generation == 0 {
		return nil
	}
	q, err := r.awaitMonitor(ctx)
	if err != nil {
		return err
	}
	if err := endMigration(ctx, q); err != nil {
		return err
	}
	m.driver.stepHook("settle: ended")
	if err := continueVM(ctx, q); err != nil {
		return err
	}
	if err := m.plugUSB(ctx, q); err != nil && ctx.Err() == nil {
		m.driver.log.Warn("a USB device of a VM was not attached again after a save", "vm", m.id, "error", err)
	}
	m.driver.stepHook("settle: continues")
	roots, err := diskRootNodes(ctx, q)
	if err != nil {
		return err
	}
	_ = q.call(ctx, "closefd", map[string]string{"fdname": stateFdName}, nil) // refused when the transfer took it
	if slices.Contains(roots, overlayName(0, generation)) {
		return m.updateConfig(func(c *vmConfig) { c.adoptSavedOverlays() })
	}
	return m.dropOverlays(ctx, q, generation)
}

// endLeftoverSave settles the save of an agent that was killed, or one that could not be settled at its
// end. It waits for one in progress.
func (r *run) endLeftoverSave(ctx context.Context) {
	for said := false; ; said = true {
		err := r.endLeftoverSaveOnce(ctx)
		if err == nil || errors.Is(err, errProcessGone) || ctx.Err() != nil {
			return
		}
		if !said {
			r.machine.driver.log.Warn("undoing an interrupted save failed; the VM may be paused; retrying", "vm",
				r.machine.id, "error",
				err)
		}
		if sleep(ctx, endSaveRetryDelay) != nil {
			return
		}
	}
}

func (r *run) endLeftoverSaveOnce(ctx context.Context) error {
	if err := r.machine.saveLock.lock(ctx); err != nil {
		return err
	}
	defer r.machine.saveLock.unlock()
	ctx, cancel := context.WithTimeout(ctx, endSaveTimeout)
	defer cancel()
	return r.machine.tryEndSave(ctx, r)
}

// endMigration cancels a running transfer and waits for its end: a guest that resumed before it
// would corrupt the memory in it.
func endMigration(ctx context.Context, q *qmpConn) error {
	for asked := false; ; {
		s, err := queryMigration(ctx, q)
		if err != nil || s.hasEnded() {
			return err
		}
		if !asked {
			if err := q.call(ctx, "migrate_cancel", nil, nil); err != nil {
				return err
			}
			asked = true
		}
		if err := sleep(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

// pausedStates are the states, by QEMU's name, in which a save may leave a guest.
var pausedStates = []string{"paused", "postmigrate", "finish-migrate"}

// continueVM resumes a paused guest. Only a save pauses one, and this is only called when a save is
// recorded. A guest in another state has ended, or its disk is full.
func continueVM(ctx context.Context, q *qmpConn) error {
	state, err := runState(ctx, q)
	if err != nil || !slices.Contains(pausedStates, state) {
		return err
	}
	return q.call(ctx, "cont", nil, nil)
}

func runState(ctx context.Context, q *qmpConn) (string, error) {
	var state struct {
		Status string `json:"status"`
	}
	err := q.call(ctx, "query-status", nil, &state)
	return state.Status, err
}

// diskRootNodes returns the nodes that the guest's disks write to.
func diskRootNodes(ctx context.Context, q *qmpConn) ([]string, error) {
	var disks []struct {
		Inserted struct {
			Node string `json:"node-name"`
		} `json:"inserted"`
	}
	if err := q.call(ctx, "query-block", nil, &disks); err != nil {
		return nil, err
	}
	names := make([]string, len(disks))
	for i, d := range disks {
		names[i] = d.Inserted.Node
	}
	return names, nil
}

// dropOverlays removes overlays that no disk writes to.
func (m *machine) dropOverlays(ctx context.Context, q *qmpConn, generation int) error {
	m.mu.Lock()
	disks := len(m.config.Spec.Disks)
	m.mu.Unlock()
	for i := range disks {
		var refused *remoteError // when the save did not get that far
		err := q.call(ctx, "blockdev-del", map[string]string{"node-name": overlayName(i, generation)}, nil)
		if err != nil && !errors.As(err, &refused) {
			return err
		}
		_ = q.call(ctx, "remove-fd", map[string]int{"fdset-id": overlayFdSet(i, generation)}, nil)
	}
	if err := m.removeOverlays(generation); err != nil {
		return err
	}
	m.driver.stepHook("settle: dropped")
	return m.updateConfig(func(c *vmConfig) { c.Saving = 0 })
}
