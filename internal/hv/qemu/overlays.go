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

// topOverlay is the overlay that a disk is written to.
type topOverlay struct {
	disk, generation int
}

// beginSave creates the next overlays and durably records that they may be in use from now on.
func (m *machine) beginSave(ctx context.Context) (generation int, tops []topOverlay, err error) {
	present := m.generations()
	if len(present) >= maxOverlays {
		return 0, nil,
			hv.RefusedError(
				"it was saved %d times while it ran, and its disks can have no more layers; save it without "+
					"its memory, and start a new one from that", len(present)-1)
	}
	m.mu.Lock()
	disks, generation := len(m.config.Spec.Disks), m.config.LastUsed+1
	m.mu.Unlock()
	for i := range disks {
		tops = append(tops, topOverlay{i, present[len(present)-1]})
		if err == nil {
			err = m.nextOverlay(ctx, tops[i], generation)
		}
	}
	m.driver.stepHook("save: overlays")
	if err == nil {
		err = m.updateConfig(func(c *vmConfig) { c.LastUsed, c.Saving = generation, generation })
	}
	if err != nil {
		return 0, nil, errors.Join(err, m.removeOverlays(generation))
	}
	m.driver.stepHook("save: noted")
	return generation, tops, nil
}

// nextOverlay creates an overlay to be put on top of a disk. Before that it flushes what the guest
// has written so far, which QEMU then need not do while the guest is paused.
func (m *machine) nextOverlay(ctx context.Context, top topOverlay, generation int) error {
	size, err := syncedSize(m.overlayPath(top.disk, top.generation))
	if err != nil {
		return err
	}
	path := m.overlayPath(top.disk, generation)
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

// updateConfig changes the record of the overlays durably.
func (m *machine) updateConfig(change func(*vmConfig)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	cfg := m.config
	change(&cfg)
	if err := writeJSON(m.dir, configFile, cfg); err != nil {
		return err
	}
	m.config = cfg
	return nil
}

// removeOverlays removes the existing overlays of a generation.
func (m *machine) removeOverlays(generation int) error {
	m.mu.Lock()
	disks := len(m.config.Spec.Disks)
	m.mu.Unlock()
	for i := range disks {
		if err := removeFile(m.overlayPath(i, generation)); err != nil {
			return fmt.Errorf("remove overlay: %w", err)
		}
	}
	return nil
}

// endSaveOfStopped ends the save of a VM that no longer runs. Overlays that QEMU may have written to are
// kept: unwritten ones are empty and change nothing. If one is missing, QEMU never had all of them.
func (m *machine) endSaveOfStopped() error {
	m.mu.Lock()
	saving, disks := m.config.Saving, len(m.config.Spec.Disks)
	m.mu.Unlock()
	if saving == 0 {
		return nil
	}
	for i := range disks {
		_, err := os.Stat(m.overlayPath(i, saving))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := m.removeOverlays(saving); err != nil {
				return err
			}
			return m.updateConfig(func(c *vmConfig) { c.Saving = 0 })
		case err != nil:
			return err
		}
	}
	return m.updateConfig(func(c *vmConfig) { c.adoptSavedOverlays() })
}

// adoptSavedOverlays makes the overlays of a save part of the chain.
func (c *vmConfig) adoptSavedOverlays() {
	generations := []int{0}
	if c.Generations != nil {
		generations = c.Generations
	}
	c.Generations, c.Saving = append(slices.Clip(generations), c.Saving), 0
}
