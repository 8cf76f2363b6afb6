package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/buildyard/buildyard/internal/hv"
)

// maxOverlays limits the overlays of a disk. Each costs QEMU open files, and the guest's reads take
// longer.
const maxOverlays = 64

// diskTop is the overlay that a disk is written to.
type diskTop struct {
	disk, generation int
}

// beginSave creates the next overlays and durably records that they may be in use from now on.
func (m *machine) beginSave(ctx context.Context) (generation int, tops []diskTop, err error) {
	present := m.generations()
	if len(present) >= maxOverlays {
		return 0, nil,
			hv.Refuse(
				"it was saved %d times while it ran, and its disks can have no more layers; save it without "+
					"its memory, and start a new one from that", len(present)-1)
	}
	m.mu.Lock()
	disks, generation := len(m.cfg.Spec.Disks), m.cfg.LastUsed+1
	m.mu.Unlock()
	for i := range disks {
		tops = append(tops, diskTop{i, present[len(present)-1]})
		if err == nil {
			err = m.nextOverlay(ctx, tops[i], generation)
		}
	}
	m.d.step("save: overlays")
	if err == nil {
		err = m.noteSave(func(c *config) { c.LastUsed, c.Saving = generation, generation })
	}
	if err != nil {
		return 0, nil, errors.Join(err, m.removeOverlays(generation))
	}
	m.d.step("save: noted")
	return generation, tops, nil
}

// nextOverlay creates an overlay to be put on top of a disk. Before that it flushes what the guest
// has written so far, which QEMU then need not do while the guest is paused.
func (m *machine) nextOverlay(ctx context.Context, top diskTop, generation int) error {
	size, err := syncedSize(m.overlay(top.disk, top.generation))
	if err != nil {
		return err
	}
	path := m.overlay(top.disk, generation)
	for _, left := range []string{path, path + ".part"} {
		if err := removeFile(left); err != nil {
			return err
		}
	}
	if err := CreateOverlay(ctx, path, size); err != nil {
		return err
	}
	_, err = syncedSize(path) // it is about to be relied on
	return err
}

// syncedSize returns the size of the disk in an overlay, and flushes it.
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

// removeOverlays removes the existing overlays of a generation.
func (m *machine) removeOverlays(generation int) error {
	m.mu.Lock()
	disks := len(m.cfg.Spec.Disks)
	m.mu.Unlock()
	for i := range disks {
		if err := removeFile(m.overlay(i, generation)); err != nil {
			return fmt.Errorf("remove overlay: %w", err)
		}
	}
	return nil
}

// settleDead ends the save of a VM that no longer runs. Overlays that QEMU may have written to are
// kept: unwritten ones are empty and change nothing. If one is missing, QEMU never had all of them.
func (m *machine) settleDead() error {
	m.mu.Lock()
	saving, disks := m.cfg.Saving, len(m.cfg.Spec.Disks)
	m.mu.Unlock()
	if saving == 0 {
		return nil
	}
	for i := range disks {
		_, err := os.Stat(m.overlay(i, saving))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := m.removeOverlays(saving); err != nil {
				return err
			}
			return m.noteSave(func(c *config) { c.Saving = 0 })
		case err != nil:
			return err
		}
	}
	return m.noteSave(func(c *config) { c.adopt() })
}

// adopt makes the overlays of a save part of the chain.
func (c *config) adopt() {
	generations := []int{0}
	if c.Generations != nil {
		generations = c.Generations
	}
	c.Generations, c.Saving = append(slices.Clip(generations), c.Saving), 0
}
