package rig

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestProcess runs a real program: it ends by a kill, and an end without one is an error.
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

// TestRush: a program that ends on request is not killed, and one that does not is.
func TestRush(t *testing.T) {
	for script, want := range map[string]bool{
		"exec sleep 600": false, "trap '' TERM; echo on >on; while :; do :; done": true,
	} {
		dir := t.TempDir()
		p := NewProcess(dir, "sleeper", "sh", "-c", "cd "+dir+"; "+script)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		for want {
			if _, err := os.Stat(filepath.Join(dir, "on")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		patience := 10 * time.Second
		if want {
			patience = 50 * time.Millisecond
		}
		if killed, err := p.Rush(patience); err != nil || killed != want || p.Running() {
			t.Errorf("%s: killed %v, %v", script, killed, err)
		}
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

// TestOutputBrokenOff: a program that is broken off cleans up, and nothing that it
// started continues.
func TestOutputBrokenOff(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(300*time.Millisecond, cancel)
	script := "trap 'touch cleaned' EXIT\ntouch begun\nsh -c 'echo $$ >child; exec sleep 600'\n"
	if _, err := Output(ctx, dir, "bash", "-c", script); err == nil {
		t.Fatal("no error")
	}
	for _, name := range []string{"begun", "cleaned"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	cmdline := filepath.Join("/proc", strings.TrimSpace(string(raw)), "cmdline")
	for range 100 {
		if line, err := os.ReadFile(cmdline); err != nil || len(line) == 0 { // it has ended, or is a zombie
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%s continues", cmdline)
}
