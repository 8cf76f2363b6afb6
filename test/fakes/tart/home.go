package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/internal/reflink"
	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

// Files of a VM.
const (
	configFile = "config.json"
	diskFile   = "disk.img"
	nvramFile  = "nvram.bin"
	stateFile  = "state.vzvmsave"
)

// home is TART_HOME: vms/NAME/, and tmp/ for what is not complete.
type home struct {
	dir   string
	knobs fakeguest.Knobs
}

func openHome() (*home, error) {
	dir := os.Getenv("TART_HOME")
	if dir == "" {
		dir = filepath.Join(os.Getenv("HOME"), ".tart")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"vms", "tmp", "cache/OCIs"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	k := os.Getenv("TART_KNOBS")
	if k == "" {
		k = filepath.Join(filepath.Dir(dir), "tart-knobs")
	}
	return &home{dir, fakeguest.Knobs(k)}, nil
}

// vm is the directory of one VM.
type vm struct {
	*home
	name, dir string
}

func (h *home) vm(name string) *vm { return &vm{h, name, filepath.Join(h.dir, "vms", name)} }

func (v *vm) path(file string) string { return filepath.Join(v.dir, file) }

// isComplete reports whether a directory has the files of a VM; others are skipped by all commands.
func (v *vm) isComplete() bool {
	for _, file := range []string{configFile, diskFile, nvramFile} {
		if _, err := os.Stat(v.path(file)); err != nil {
			return false
		}
	}
	return true
}

// existing returns a VM, or exit code 2.
func (h *home) existing(name string) (*vm, error) {
	v := h.vm(name)
	if filepath.Base(name) != name || !v.isComplete() {
		return nil, fail(2, "the specified VM \"%s\" does not exist", name)
	}
	return v, nil
}

// all returns the complete VMs by name.
func (h *home) all() ([]*vm, error) {
	entries, err := os.ReadDir(filepath.Join(h.dir, "vms"))
	if err != nil {
		return nil, err
	}
	var out []*vm
	for _, e := range entries {
		if v := h.vm(e.Name()); v.isComplete() {
			out = append(out, v)
		}
	}
	return out, nil
}

// owner returns the process that runs the VM; 0 = none. The process that runs it must not call this.
func (v *vm) owner() (int, error) { return cliproc.LockOwner(v.path(configFile)) }

// running returns the VM and its process, or exit code 2.
func (h *home) running(name string) (*vm, cliproc.Process, error) {
	v, err := h.existing(name)
	if err != nil {
		return nil, cliproc.Process{}, err
	}
	pid, err := v.owner()
	if err != nil {
		return nil, cliproc.Process{}, err
	}
	p, err := cliproc.Find(pid)
	if err != nil {
		return nil, cliproc.Process{}, fail(2, "VM \"%s\" is not running", name)
	}
	return v, p, nil
}

// state is what list and get show.
func (v *vm) state() (string, error) {
	pid, err := v.owner()
	if err != nil || pid != 0 {
		return "running", err
	}
	if _, err := os.Stat(v.path(stateFile)); err == nil {
		return "suspended", nil
	}
	return "stopped", nil
}

// cleanTmp removes the entries of tmp/ that no process has locked by flock.
func (h *home) cleanTmp() {
	entries, _ := os.ReadDir(filepath.Join(h.dir, "tmp"))
	for _, e := range entries {
		path := filepath.Join(h.dir, "tmp", e.Name())
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(path)
		}
		_ = f.Close()
	}
}

// build makes a VM in a locked directory of tmp/ and moves it to its place, where it replaces another one.
func (h *home) build(name string, fill func(staged *vm) error) error {
	dir, err := os.MkdirTemp(filepath.Join(h.dir, "tmp"), "")
	if err != nil {
		return err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := fill(&vm{h, name, dir}); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if err := os.RemoveAll(h.vm(name).dir); err != nil {
		return err
	}
	return os.Rename(dir, h.vm(name).dir)
}

// cloneFile shares the bytes of a file where the file system can, as APFS does, and copies it elsewhere.
func (h *home) cloneFile(vmName, from, to string) error {
	if h.knobs.IsSet(vmName, knobDiskFull) {
		return fmt.Errorf("copy %s: %w", filepath.Base(from), syscall.ENOSPC)
	}
	time.Sleep(h.knobs.Seconds(vmName, knobCloneDelay, 0))
	err := reflink.CloneFile(from, to)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	_ = os.Remove(to)
	return copySparse(from, to)
}

// exists reports whether a file exists.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
