package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

var (
	createOptions = optionTable{"d": takesValue} // size of the disk
	cloneOptions  = optionTable{"t": takesValue, "tag": takesValue, "c": noValue, "copy": noValue}
)

// createVM makes a VM whose guest has no files.
func createVM(_ context.Context, c *call) (any, error) {
	if err := c.checkName(c.operand(0)); err != nil {
		return nil, err
	}
	v := c.newVM(c.operand(0), c.operand(1))
	if size := ramBytes(c.value("d")); size > 0 {
		v.DiskBytes = size
	}
	if err := os.WriteFile(v.image(), nil, 0o600); err != nil {
		return nil, err
	}
	return v.UUID, v.write()
}

// cloneVM lists the new VM before its image is complete.
func cloneVM(ctx context.Context, c *call) (any, error) {
	if err := c.checkName(c.operand(1)); err != nil {
		return nil, err
	}
	source, err := c.idle(c.operand(0))
	if err != nil {
		return nil, err
	}
	clone := c.newVM(c.operand(1), source.Version)
	clone.CPUs, clone.RAM, clone.DiskBytes, clone.VNC = source.CPUs, source.RAM, source.DiskBytes, source.VNC
	for _, r := range source.Rules {
		if r.Chosen {
			r.HostPort, r.Chosen = 0, false
		}
		clone.Rules = append(clone.Rules, r)
	}
	printProgress(c, "cloning")
	image, err := os.Open(source.image())
	if err != nil {
		return nil, fail(codeFailure, "%s: image not found", source.Name)
	}
	defer image.Close()
	return clone.UUID, clone.fill(ctx, image)
}

// fill writes a new VM and its image.
func (v *vm) fill(ctx context.Context, image io.Reader) error {
	if err := v.write(); err != nil {
		return err
	}
	for v.library.knobs.IsSet(v.Name, knobCloneHold) && fakeguest.Pause(ctx, 20*time.Millisecond) {
	}
	if v.library.knobs.IsSet(v.Name, knobDiskFull) {
		return fail(codeFailure, "%s: No space left on device", v.Image)
	}
	out, err := os.OpenFile(v.image(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, image)
	return errors.Join(err, out.Close())
}

// exportVM writes an archive: its length and config.yaml, then the image. The form of a real one is not known.
func exportVM(ctx context.Context, c *call) (any, error) {
	v, err := c.idle(c.operand(0))
	if err != nil {
		return nil, err
	}
	config, err := yaml.Marshal(v)
	if err != nil {
		return nil, err
	}
	image, err := os.ReadFile(v.image())
	if err != nil {
		return nil, err
	}
	printProgress(c, "exporting")
	head := fmt.Sprintf("%s%8d", archiveMagic, len(config))
	return nil, v.writeArchive(ctx, c.operand(1), append(append([]byte(head), config...), image...))
}

// writeArchive writes one half of an archive, then the other.
func (v *vm) writeArchive(ctx context.Context, path string, archive []byte) error {
	half := len(archive) / 2
	if err := os.WriteFile(path, archive[:half], 0o600); err != nil {
		return err
	}
	for v.library.knobs.IsSet(v.Name, knobExportHold) && fakeguest.Pause(ctx, 20*time.Millisecond) {
	}
	if v.library.knobs.IsSet(v.Name, knobDiskFull) {
		return fail(codeFailure, "%s: No space left on device", path)
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = out.Write(archive[half:])
	return errors.Join(err, out.Close())
}

const archiveMagic = "fake-anka-archv1"

// importVM makes a VM of an archive, with another name if one is given.
func importVM(ctx context.Context, c *call) (any, error) {
	f, err := os.Open(c.operand(0))
	if err != nil {
		return nil, fail(codeFailure, "%s: no such file", c.operand(0))
	}
	defer f.Close()
	var head [len(archiveMagic) + 8]byte
	var size int64
	if _, err := io.ReadFull(f, head[:]); err != nil || string(head[:len(archiveMagic)]) != archiveMagic {
		return nil, fail(codeFailure, "%s: not an archive", c.operand(0))
	}
	if _, err := fmt.Sscan(string(head[len(archiveMagic):]), &size); err != nil || size < 0 || size > 1<<20 {
		return nil, fail(codeFailure, "%s: damaged archive", c.operand(0))
	}
	config := make([]byte, size)
	var source vm
	if _, err := io.ReadFull(f, config); err != nil {
		return nil, fail(codeFailure, "%s: damaged archive", c.operand(0))
	}
	if err := yaml.Unmarshal(config, &source); err != nil {
		return nil, fail(codeFailure, "%s: damaged archive", c.operand(0))
	}
	name := source.Name
	if c.operand(1) != "" {
		name = c.operand(1)
	}
	if err := c.checkName(name); err != nil {
		return nil, err
	}
	v := c.newVM(name, source.Version)
	v.CPUs, v.RAM, v.DiskBytes, v.VNC, v.Rules = source.CPUs, source.RAM, source.DiskBytes, source.VNC, source.Rules
	printProgress(c, "importing")
	return v.UUID, v.fill(ctx, f)
}

// deleteVM ends a running VM, and refuses to ask.
func deleteVM(ctx context.Context, c *call) (any, error) {
	v, err := c.find(c.operand(0))
	if err != nil {
		return nil, err
	}
	if !c.has("yes") {
		return nil, fail(codeUsage, "Aborted!")
	}
	if v.status() == failed {
		return nil, v.failedError()
	}
	if err := v.kill(ctx); err != nil {
		return nil, err
	}
	if err := os.Remove(v.image()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return nil, os.RemoveAll(v.dir())
}

// kill ends the process of the VM, and waits for that of its guest.
func (v *vm) kill(ctx context.Context) error {
	p, err := cliproc.Find(v.pid())
	if err != nil {
		return nil //nolint:nilerr // it does not run
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	for p.IsAlive() && fakeguest.Pause(ctx, 10*time.Millisecond) {
	}
	return nil
}

// failedError is the answer to commands that need a VM that has not failed.
func (v *vm) failedError() error {
	return fail(codeFailure, "%s: is in failed state, use stop --force first", v.Name)
}

// imageBytes returns the size of an image; 0 without one.
func imageBytes(path string) int64 {
	info, err := os.Stat(filepath.Clean(path))
	if err != nil {
		return 0
	}
	return info.Size()
}
