package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// settleTime bounds how long a save that is given up may take to be undone.
const settleTime = 5 * time.Minute

// settleSave ends whatever a save has begun: a transfer is cancelled, the guest
// goes on, and the overlays that QEMU writes to are noted. It asks QEMU how far
// the save came, so it serves a save that succeeded or failed, and one whose
// agent was killed at any step. The caller holds m.saving.
func (m *machine) settleSave(ctx context.Context, r *run) error {
	m.mu.Lock()
	generation := m.cfg.Saving
	m.mu.Unlock()
	if generation == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	q, err := r.monitorWithin(ctx)
	if err != nil {
		return err
	}
	if err := endMigration(ctx, q); err != nil {
		return err
	}
	if err := goOn(ctx, q); err != nil {
		return err
	}
	if err := m.plugUSB(ctx, q); err != nil && ctx.Err() == nil {
		m.d.log.Warn("a VM went on from a save without a device", "vm", m.id, "error", err)
	}
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

// settleLeft settles the save of an agent that was killed, unless this process
// is saving the VM itself.
func (r *run) settleLeft(ctx context.Context) {
	if !r.m.saving.TryLock() {
		return
	}
	defer r.m.saving.Unlock()
	if err := r.m.settleSave(ctx, r); err != nil && ctx.Err() == nil {
		r.m.d.log.Warn("cannot undo an interrupted save", "vm", r.m.id, "error", err)
	}
}

// endMigration cancels a transfer that goes on and waits for its end: a guest
// that went on before it would spoil the memory in it.
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

// goOn lets a paused guest run. Only a save pauses one, and only when a save is
// noted is this called.
func goOn(ctx context.Context, q *qmpConn) error {
	var state struct {
		Running bool   `json:"running"`
		Status  string `json:"status"`
	}
	if err := q.call(ctx, "query-status", nil, &state); err != nil || state.Running {
		return err
	}
	if state.Status != "paused" && state.Status != "postmigrate" && state.Status != "finish-migrate" {
		return nil // it ended, or its disk is full: not the save's doing
	}
	return q.call(ctx, "cont", nil, nil)
}

// rootNodes answers the nodes that the guest's disks write to.
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

// dropOverlays takes overlays back that no disk writes to.
func (m *machine) dropOverlays(ctx context.Context, q *qmpConn, generation int) error {
	m.mu.Lock()
	disks := len(m.cfg.Spec.Disks)
	m.mu.Unlock()
	for i := range disks {
		var refused *remoteError // when the save did not come that far
		err := q.call(ctx, "blockdev-del", map[string]string{"node-name": overlayName(i, generation)}, nil)
		if err != nil && !errors.As(err, &refused) {
			return err
		}
		_ = q.call(ctx, "remove-fd", map[string]int{"fdset-id": fdSet(i, generation)}, nil)
		if err := removeFile(m.overlay(i, generation)); err != nil {
			return fmt.Errorf("drop an overlay: %w", err)
		}
	}
	return m.noteSave(func(c *config) { c.Saving = 0 })
}

// settleDead does the same for a VM that does not run. Overlays that QEMU may
// have written to are kept: when it had not, they are empty and change nothing.
func (m *machine) settleDead() error {
	m.mu.Lock()
	saving := m.cfg.Saving
	m.mu.Unlock()
	if saving == 0 {
		return nil
	}
	return m.noteSave(func(c *config) { c.adopt() })
}

// adopt makes the overlays of a save part of the chain.
func (c *config) adopt() {
	if c.Generations == nil {
		c.Generations = []int{0}
	}
	c.Generations, c.Saving = append(slices.Clone(c.Generations), c.Saving), 0
}
