package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

// slots is the system's limit of running VMs, for all homes that have the same directory: a file per VM, locked by the
// process that runs it, or with a time until which the slot of an ended VM stays taken.
type slots struct {
	dir  string
	file *os.File // of this process
}

// takeSlot takes a slot, or fails with the text of the limit.
func (v *vm) takeSlot() (*slots, error) {
	s := &slots{dir: v.knobs.Text("", knobSlots, filepath.Join(filepath.Dir(v.home.dir), "tart-slots"))}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	taken, err := s.taken()
	if err != nil {
		return nil, err
	}
	if len(taken) >= v.knobs.Number("", knobLimit, 2) {
		text := "The number of VMs exceeds the system limit"
		if others := v.runningOthers(); len(others) > 0 {
			text += " (other running VMs: " + strings.Join(others, ", ") + ")"
		}
		return nil, fail(1, "%s", text)
	}
	path := filepath.Join(s.dir, fmt.Sprintf("%d-%s", os.Getpid(), v.name))
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return nil, err
	}
	s.file, err = cliproc.TakeLock(path)
	return s, err
}

func (s *slots) lock() (unlock func(), err error) {
	f, err := os.Open(s.dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", s.dir, err)
	}
	return func() { _ = f.Close() }, nil
}

// taken returns the files of the slots in use, and removes the others.
func (s *slots) taken() (out []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		pid, err := cliproc.LockOwner(path)
		if errors.Is(err, fs.ErrNotExist) { // its VM has ended since
			continue
		}
		if err != nil {
			return nil, err
		}
		text, _ := os.ReadFile(path)
		until, _ := strconv.ParseInt(string(text), 10, 64)
		if pid == 0 && time.Now().UnixMilli() >= until {
			_ = os.Remove(path)
			continue
		}
		out = append(out, e.Name())
	}
	return out, nil
}

// free frees the slot after a while.
func (s *slots) free(after time.Duration) {
	if after <= 0 {
		_ = os.Remove(s.file.Name())
		return
	}
	_, _ = s.file.WriteString(strconv.FormatInt(time.Now().Add(after).UnixMilli(), 10))
}

// runningOthers returns the names of the other VMs of this home that run.
func (v *vm) runningOthers() (out []string) {
	all, _ := v.all()
	for _, other := range all {
		if other.name == v.name { // this process has its lock
			continue
		}
		if pid, err := other.owner(); err == nil && pid != 0 {
			out = append(out, other.name)
		}
	}
	return out
}
