package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

var _ hv.Saver = (*Driver)(nil)

// stateFd is the name that QEMU knows an open state file by.
const stateFd = "state"

// Save exports a VM's changes, and with spec.Suspend its state.
func (d *Driver) Save(ctx context.Context, id string, spec hv.SaveSpec) (hv.Saved, error) {
	if err := spec.Validate(); err != nil {
		return hv.Saved{}, fmt.Errorf("qemu: %w", err)
	}
	m, r, err := d.running(id)
	if err != nil {
		return hv.Saved{}, err
	}
	m.saving.Lock()
	defer m.saving.Unlock()
	var out hv.Saved
	if err = m.settleSave(ctx, r); err == nil { // of an earlier agent
		if spec.Suspend {
			out, err = m.saveSuspended(ctx, r, spec)
		} else {
			out, err = m.saveStopped(ctx, r, spec)
		}
	}
	if err != nil {
		return hv.Saved{}, fmt.Errorf("qemu: save VM %s: %w", id, err)
	}
	return out, nil
}

// saveStopped shuts the guest down and exports its disks.
func (m *machine) saveStopped(ctx context.Context, r *run, spec hv.SaveSpec) (hv.Saved, error) {
	if err := m.intend(ending{}); err != nil {
		return hv.Saved{}, err
	}
	if !m.shutDown(ctx, r) {
		return hv.Saved{}, errors.Join(ctx.Err(), errors.New("the guest did not shut down in time"), m.unintend())
	}
	return m.exported(ctx, spec, hv.Saved{}, m.generations())
}

// exported writes the deltas of these generations and reports the last steps.
func (m *machine) exported(ctx context.Context, spec hv.SaveSpec, s hv.Saved, generations []int) (hv.Saved, error) {
	err := spec.Did(hv.SavedGuest)
	if err == nil {
		s.Disks, err = m.export(ctx, spec.Dir, generations)
	}
	if err == nil {
		err = spec.Did(hv.SavedDisks)
	}
	if err == nil {
		return s, nil
	}
	for _, d := range s.Disks {
		err = errors.Join(err, removeFile(d.Path))
	}
	return hv.Saved{}, err
}

// saveSuspended freezes disks and memory at one instant. Whatever fails, and
// wherever, settleSave lets the guest go on.
func (m *machine) saveSuspended(ctx context.Context, r *run, spec hv.SaveSpec) (s hv.Saved, err error) {
	frozen := m.generations()
	path := filepath.Join(spec.Dir, stateFile)
	s = hv.Saved{State: path, Pin: m.compat()}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeFile(path))
		}
	}()
	state, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return s, err
	}
	defer state.Close()
	var paused time.Time
	err = m.freeze(ctx, r, spec, state, &paused)
	if q, ok := r.link(); ok && err == nil {
		err = goOn(context.WithoutCancel(ctx), q)
	}
	s.Pause = time.Since(paused)
	if serr := m.settleSave(context.WithoutCancel(ctx), r); err == nil {
		err = serr
	} else if serr != nil {
		err = errors.Join(err, fmt.Errorf("and the VM could not be let go on: %w", serr))
	}
	if err == nil {
		err = state.Sync()
	}
	if err != nil {
		return s, err
	}
	return m.exported(ctx, spec, s, frozen)
}

// freeze takes the save up to the whole state in its file; the VM is paused then.
func (m *machine) freeze(ctx context.Context, r *run, spec hv.SaveSpec, state *os.File, paused *time.Time) error {
	*paused = time.Now()
	q, err := r.monitorWithin(ctx)
	if err != nil {
		return err
	}
	generation, disks, err := m.beginSave(ctx)
	if err == nil {
		err = m.prepare(ctx, q, generation, state)
	}
	if err == nil {
		err = spec.Did(hv.SavePrepared)
	}
	if err != nil {
		return err
	}
	*paused = time.Now()
	for _, step := range []struct {
		name hv.SaveStep
		do   func() error
	}{
		{hv.SavePaused, func() error { return q.call(ctx, "stop", nil, nil) }},
		{hv.SaveFrozen, func() error { return snapshot(ctx, q, disks, generation) }},
		{hv.SavedState, func() error { return r.migrate(ctx, q, "migrate", stateFd) }},
	} {
		if err := step.do(); err != nil {
			return err
		}
		if err := spec.Did(step.name); err != nil {
			return err
		}
	}
	return nil
}

// diskTop is the overlay that a disk is written to.
type diskTop struct {
	disk, generation int
}

// beginSave makes the next overlays and notes durably that they may be in use
// from now on.
func (m *machine) beginSave(ctx context.Context) (generation int, tops []diskTop, err error) {
	present := m.generations()
	m.mu.Lock()
	cfg := m.cfg
	m.mu.Unlock()
	generation = cfg.LastUsed + 1
	for i := range cfg.Spec.Disks {
		old := m.overlay(i, present[len(present)-1])
		size, err := syncedSize(old)
		if err != nil {
			return 0, nil, err
		}
		path := m.overlay(i, generation)
		for _, left := range []string{path, path + ".part"} {
			if err := removeFile(left); err != nil {
				return 0, nil, err
			}
		}
		if err := createOverlay(ctx, path, size); err != nil {
			return 0, nil, err
		}
		tops = append(tops, diskTop{i, present[len(present)-1]})
	}
	return generation, tops, m.noteSave(func(c *config) { c.LastUsed, c.Saving = generation, generation })
}

// syncedSize answers the size of the disk in an overlay. It also writes out
// what the guest has written so far, which QEMU then need not do in the pause.
func syncedSize(path string) (int64, error) {
	f, size, err := openBase(hv.Disk{Path: path, Format: "qcow2"})
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return size, f.Sync()
}

// noteSave changes the record of the overlays durably.
func (m *machine) noteSave(change func(*config)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	cfg := m.cfg
	change(&cfg)
	if err := writeJSON(m.dir, configFile, cfg); err != nil {
		return err
	}
	m.cfg = cfg
	return nil
}

// fdSet is the number under which QEMU gets an overlay while it runs. Those of
// its command line are far below; a generation is never used twice.
func fdSet(disk, generation int) int { return generation*1000 + disk + 500 }

// prepare gives QEMU the next overlays and the state's file.
func (m *machine) prepare(ctx context.Context, q *qmpConn, generation int, state *os.File) error {
	m.mu.Lock()
	disks := len(m.cfg.Spec.Disks)
	m.mu.Unlock()
	for i := range disks {
		set := fdSet(i, generation)
		for _, mode := range []int{os.O_RDWR, os.O_RDONLY} {
			f, err := os.OpenFile(m.overlay(i, generation), mode, 0)
			if err != nil {
				return err
			}
			err = q.pass(ctx, "add-fd", map[string]int{"fdset-id": set}, f)
			_ = f.Close()
			if err != nil {
				return err
			}
		}
		node := overlayNode(i, generation, fmt.Sprintf("/dev/fdset/%d", set), m.d.opt.UnsafeCache)
		if err := q.call(ctx, "blockdev-add", node, nil); err != nil {
			return err
		}
	}
	if err := m.unplugUSB(ctx, q); err != nil { // settleSave plugs it in again
		return err
	}
	// QEMU would keep to 128 MiB/s, and the guest stand still for longer.
	if err := q.call(ctx, "migrate-set-parameters", map[string]int64{"max-bandwidth": 1 << 40}, nil); err != nil {
		return err
	}
	return q.pass(ctx, "getfd", map[string]string{"fdname": stateFd}, state)
}

// snapshot puts the next overlays on top of all disks, or of none.
func snapshot(ctx context.Context, q *qmpConn, tops []diskTop, generation int) error {
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
		s, err := migration(ctx, q)
		switch {
		case err != nil:
			return err
		case s.Status == "completed":
			return nil
		case s.Status == "failed" || s.Status == "cancelled":
			return fmt.Errorf("the state could not be transferred: %s: %s", s.Status, s.Text)
		}
		select {
		case <-r.gone:
			return errGone
		default:
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

// migrationStatus is how the transfer of a state stands.
type migrationStatus struct {
	Status string `json:"status"` // "" = there was none
	Text   string `json:"error-desc"`
}

func (s migrationStatus) over() bool {
	return s.Status == "" || s.Status == "completed" || s.Status == "failed" || s.Status == "cancelled"
}

func migration(ctx context.Context, q *qmpConn) (s migrationStatus, err error) {
	err = q.call(ctx, "query-migrate", nil, &s)
	return s, err
}
