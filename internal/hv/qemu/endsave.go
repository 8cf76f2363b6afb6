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
	// settleTime limits how long a save waits until its effects are undone.
	settleTime = 30 * time.Second
	// settleAgain is the pause before another try, when the save has returned.
	settleAgain = time.Second
	// settleTries is how often the save itself tries: a monitor that was just lost is available
	// again after the pause of relink.
	settleTries = 3
	relink      = 50 * time.Millisecond
)

// settled ends what a save that ended with err has begun. What cannot be ended now is retried for
// as long as QEMU lives.
func (m *machine) settled(ctx context.Context, r *run, err error) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	serr := m.settleSave(ctx, r)
	for try := 1; try < settleTries && serr != nil && !errors.Is(serr, errGone) && pause(ctx, relink) == nil; try++ {
		serr = m.settleSave(ctx, r)
	}
	switch {
	case serr == nil:
		return err
	case errors.Is(serr, errGone): // what is left is for its next start
		return cmp.Or(err, serr)
	}
	if m.d.quit.Err() == nil {
		m.d.watch.Go(func() { r.settleLeft(m.d.quit) })
	}
	return errors.Join(err, fmt.Errorf("undo the save: %w", serr))
}

// settleSave ends whatever a save has begun: it cancels a transfer, resumes the guest, and records
// the overlays that QEMU writes to. It asks QEMU how far the save came, so it serves a save that
// succeeded or failed, and one whose agent was killed at any step. The caller holds m.saving.
func (m *machine) settleSave(ctx context.Context, r *run) error {
	m.mu.Lock()
	generation := m.cfg.Saving
	m.mu.Unlock()
	if generation == 0 {
		return nil
	}
	q, err := r.monitorWithin(ctx)
	if err != nil {
		return err
	}
	if err := endMigration(ctx, q); err != nil {
		return err
	}
	m.d.step("settle: ended")
	if err := continueVM(ctx, q); err != nil {
		return err
	}
	if err := m.plugUSB(ctx, q); err != nil && ctx.Err() == nil {
		m.d.log.Warn("a USB device of a VM was not attached again after a save", "vm", m.id, "error", err)
	}
	m.d.step("settle: continues")
	roots, err := rootNodes(ctx, q)
	if err != nil {
		return err
	}
	_ = q.call(ctx, "closefd", map[string]string{"fdname": stateFd}, nil) // refused when the transfer took it
	if slices.Contains(roots, overlayName(0, generation)) {
		return m.noteSave(func(c *config) { c.adopt() })
	}
	return m.dropOverlays(ctx, q, generation)
}

// settleLeft settles the save of an agent that was killed, or one that could not be settled at its
// end. It waits for one in progress.
func (r *run) settleLeft(ctx context.Context) {
	for said := false; ; said = true {
		err := r.settleOnce(ctx)
		if err == nil || errors.Is(err, errGone) || ctx.Err() != nil {
			return
		}
		if !said {
			r.m.d.log.Warn("undoing an interrupted save failed; the VM may be paused; retrying", "vm", r.m.id, "error",
				err)
		}
		if pause(ctx, settleAgain) != nil {
			return
		}
	}
}

func (r *run) settleOnce(ctx context.Context) error {
	if err := r.m.saving.take(ctx); err != nil {
		return err
	}
	defer r.m.saving.give()
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	return r.m.settleSave(ctx, r)
}

// endMigration cancels a running transfer and waits for its end: a guest that resumed before it
// would corrupt the memory in it.
func endMigration(ctx context.Context, q *qmpConn) error {
	for asked := false; ; {
		s, err := migration(ctx, q)
		if err != nil || s.over() {
			return err
		}
		if !asked {
			if err := q.call(ctx, "migrate_cancel", nil, nil); err != nil {
				return err
			}
			asked = true
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

// standing are the states, by QEMU's name, in which a save may leave a guest.
var standing = []string{"paused", "postmigrate", "finish-migrate"}

// continueVM resumes a paused guest. Only a save pauses one, and this is only called when a save is
// recorded. A guest in another state has ended, or its disk is full.
func continueVM(ctx context.Context, q *qmpConn) error {
	state, err := runState(ctx, q)
	if err != nil || !slices.Contains(standing, state) {
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

// rootNodes returns the nodes that the guest's disks write to.
func rootNodes(ctx context.Context, q *qmpConn) ([]string, error) {
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
	disks := len(m.cfg.Spec.Disks)
	m.mu.Unlock()
	for i := range disks {
		var refused *remoteError // when the save did not get that far
		err := q.call(ctx, "blockdev-del", map[string]string{"node-name": overlayName(i, generation)}, nil)
		if err != nil && !errors.As(err, &refused) {
			return err
		}
		_ = q.call(ctx, "remove-fd", map[string]int{"fdset-id": fdSet(i, generation)}, nil)
	}
	if err := m.removeOverlays(generation); err != nil {
		return err
	}
	m.d.step("settle: dropped")
	return m.noteSave(func(c *config) { c.Saving = 0 })
}
