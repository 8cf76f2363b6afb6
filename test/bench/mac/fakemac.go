package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/tart"
	"github.com/buildyard/buildyard/test/rig"
)

// The images, with the sizes of their root disks as tart counts them.
const (
	smallImage  = "small"
	largeImage  = "large"
	smallDiskGB = 1
	largeDiskGB = 60

	pieceBytes    = 1 << 20   // of data in a disk
	pieceDistance = 256 << 20 // from the begin of one to that of the next
)

// fakeMac is a volume with the images that everything is made from.
type fakeMac struct {
	dir  string // the volume's
	home string // TART_HOME of the images, and of VMs that are run directly
}

// newFakeMac makes the images.
func newFakeMac(ctx context.Context, dir string) (*fakeMac, error) {
	m := &fakeMac{dir: dir, home: filepath.Join(dir, "images", "tart")}
	if err := rig.MakeDir(m.home); err != nil {
		return nil, err
	}
	installer := filepath.Join(dir, "restore.ipsw")
	if err := os.WriteFile(installer, nil, 0o600); err != nil {
		return nil, err
	}
	for name, size := range map[string]int{smallImage: smallDiskGB, largeImage: largeDiskGB} {
		if err := m.tart(ctx, "create", name, "--from-ipsw", installer, "--disk-size", strconv.Itoa(size)); err != nil {
			return nil, err
		}
		if err := fillDisk(filepath.Join(m.imageDir(name), "disk.img")); err != nil {
			return nil, fmt.Errorf("make image %s: %w", name, err)
		}
	}
	return m, nil
}

// imageDir is the directory of an image.
func (m *fakeMac) imageDir(name string) string { return filepath.Join(m.home, "vms", name) }

// command returns a call of tart for the home of the images.
func (m *fakeMac) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "tart", args...)
	cmd.Env = append(os.Environ(), "TART_HOME="+m.home)
	return cmd
}

// tart runs a command of tart to its end.
func (m *fakeMac) tart(ctx context.Context, args ...string) error {
	if out, err := m.command(ctx, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("tart %s: %w: %s", args[0], err, out)
	}
	return nil
}

// fillDisk writes pieces of data into a disk, behind what tart's imitation has there.
func fillDisk(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was synced, or failed
	info, err := f.Stat()
	if err != nil {
		return err
	}
	noise, piece := rand.NewChaCha8([32]byte{}), make([]byte, pieceBytes)
	for off := int64(pieceDistance); off+pieceBytes <= info.Size(); off += pieceDistance {
		_, _ = noise.Read(piece) // never fails
		if _, err := f.WriteAt(piece, off); err != nil {
			return err
		}
	}
	return f.Sync()
}

// spec returns a VM of the small image for a driver.
func (m *fakeMac) spec(id, uuid string) (hv.Spec, error) {
	root, aux, c, err := tart.ReadImage(m.imageDir(smallImage))
	if err != nil {
		return hv.Spec{}, err
	}
	return hv.Spec{
		ID: id, Name: id, UUID: uuid, CPUs: c.CPUs, MemoryMB: int(c.MemoryBytes >> 20),
		Apple: &hv.Apple{HardwareModel: c.HardwareModel, MachineID: c.MachineID, MinCPUs: c.MinCPUs},
		Disks: []hv.Disk{{Path: root, Format: "raw"}, {Path: aux, Format: "raw"}},
	}, nil
}

// setKnob sets a knob of the imitation for the VMs of a home; see its package comment.
func setKnob(home, name, value string) error {
	dir := filepath.Join(filepath.Dir(home), "tart-knobs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600)
}
