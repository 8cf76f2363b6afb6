package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestPurgeKeepsDataOfRunningVMs: a purge removes the data of a node only when no process has a file of it open.
func TestPurgeKeepsDataOfRunningVMs(t *testing.T) {
	r := testDistribution(t, "1.2.0")
	p, err := r.nodePackage()
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(t.TempDir(), "disk 2")
	disk := filepath.Join(target, "node", "vms", "1", "disk.qcow2")
	if err := os.MkdirAll(filepath.Dir(disk), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(disk, []byte("disk"), 0o600); err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(t.TempDir(), "buildyard") // the directory above may be on another disk
	if err := os.Symlink(target, linked); err != nil {
		t.Fatal(err)
	}
	p.Data = []string{filepath.Join(linked, "node")}

	vm := startVM(t, disk)
	pid := strconv.Itoa(vm.Process.Pid)
	text, removed := purge(t, r, p)
	for _, want := range []string{" " + pid + ")", `"buildnode disjoin"`, p.Data[0] + " is kept"} {
		if !strings.Contains(text, want) {
			t.Errorf("the message has no %q: %s", want, text)
		}
	}
	if _, err := os.Stat(disk); err != nil || strings.Contains(removed, "buildyard") {
		t.Errorf("a purge removes the disk of a running VM or the user of its process: %v, %q", err, removed)
	}

	if err := vm.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = vm.Wait() // it was killed
	text, removed = purge(t, r, p)
	_, err = os.Stat(disk)
	if !errors.Is(err, fs.ErrNotExist) || text != "" || !strings.Contains(removed, "buildyard") {
		t.Errorf("without a VM, a purge leaves the disk or the user: %v, %q, %q", err, text, removed)
	}
}

// startVM starts a process that has a disk open, as QEMU has.
func startVM(t *testing.T, disk string) *exec.Cmd {
	t.Helper()
	f, err := os.OpenFile(disk, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	vm := exec.CommandContext(t.Context(), "sleep", "600")
	vm.ExtraFiles = []*os.File{f}
	if err := errors.Join(vm.Start(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return vm
}

// purge runs the postrm script of a package as "dpkg --purge" does, and returns its messages and the users that it
// deletes. Commands that would change this machine are replaced.
func purge(t *testing.T, r *distribution, p linuxPackage) (message, users string) {
	t.Helper()
	text, err := r.render("scripts/postrm.tmpl", p)
	if err != nil {
		t.Fatal(err)
	}
	commands := t.TempDir()
	for name, body := range map[string]string{
		"systemctl": "", "rmdir": "", "groupdel": "", "getent": "", "userdel": `echo "$@"`,
	} {
		if err := os.WriteFile(filepath.Join(commands, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := filepath.Join(commands, "postrm")
	if err := os.WriteFile(script, text, 0o755); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), "sh", script, "purge")
	cmd.Env = []string{"PATH=" + commands + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, messages.String())
	}
	return messages.String(), out.String()
}
