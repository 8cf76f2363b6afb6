package rig

import (
	"os"
	"path/filepath"
	"testing"
)

// TestProcess runs a real program: it ends by a kill, and ending by itself is an error.
func TestProcess(t *testing.T) {
	p := NewProcess(t.TempDir(), "sleeper", "sleep", "600")
	if p.Running() || p.Kill() != nil {
		t.Error("a process that was never started runs or cannot be killed")
	}
	for range 2 {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if !p.Running() {
			t.Error("it does not run")
		}
		if err := p.Kill(); err != nil || p.Running() {
			t.Errorf("kill: %v", err)
		}
	}
	if err := p.Kill(); err == nil {
		t.Error("killing it again is no error")
	}
	if err := p.End(); err != nil {
		t.Errorf("ending what has ended: %v", err)
	}
}

// TestNoQEMUOfOurs: a directory in which nothing was started has no QEMU process.
func TestNoQEMUOfOurs(t *testing.T) {
	if found, err := QEMUs(t.TempDir()); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
	if uuid := machineUUID(os.Getpid()); uuid != "" {
		t.Errorf("this test is the machine %q", uuid)
	}
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if !holds(os.Getpid(), dir) || holds(os.Getpid(), dir+"/other") {
		t.Error("open files are not seen")
	}
}
