package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// simMachines finds the VMs of simulated hosts: a file each, anywhere below dir.
func simMachines(dir string) ([]machine, error) {
	var found []machine
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went while we walked
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".vm.json") {
			return err
		}
		raw, err := os.ReadFile(path) //nolint:gosec // below our own directory
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		var file struct {
			VM struct {
				ID, Status string
				Labels     map[string]string
			}
		}
		if err := json.Unmarshal(raw, &file); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		found = append(found, machine{file.VM.Labels["instance"], path, file.VM.Status == "running"})
		return nil
	})
	return found, err
}

// qemu is a QEMU process that one of our agents started.
type qemu struct {
	pid  int
	uuid string // the machine UUID, which is the instance's id
}

// qemus finds the QEMU processes that have a file below dir open: those, and only
// those, were started by an agent of ours. They are sorted by their instances.
func qemus(dir string) ([]qemu, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []qemu
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if uuid := machineUUID(pid); uuid != "" && holds(pid, dir) {
			found = append(found, qemu{pid, uuid})
		}
	}
	slices.SortFunc(found, func(a, b qemu) int { return strings.Compare(a.uuid, b.uuid) })
	return found, nil
}

// machineUUID gives the value of -uuid of a QEMU process; "" for other processes.
func machineUUID(pid int) string {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return ""
	}
	args := strings.Split(string(raw), "\x00")
	if !strings.HasPrefix(filepath.Base(args[0]), "qemu-system-") {
		return ""
	}
	for i, arg := range args[:len(args)-1] {
		if arg == "-uuid" {
			return args[i+1]
		}
	}
	return ""
}

// holds says whether a process has a file below dir open.
func holds(pid int, dir string) bool {
	fds := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(fds)
	if err != nil {
		return false // it has ended
	}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(fds, e.Name())); err == nil && strings.HasPrefix(target, dir+"/") {
			return true
		}
	}
	return false
}

// qemuMachines gives the QEMU processes below dir and the directories of VMs that
// have none, such as those that ended in an error.
func qemuMachines(dir, vms string) ([]machine, error) {
	processes, err := qemus(dir)
	if err != nil {
		return nil, err
	}
	var found []machine
	running := map[string]bool{}
	for _, q := range processes {
		running[q.uuid] = true
		found = append(found, machine{q.uuid, fmt.Sprintf("QEMU process %d", q.pid), true})
	}
	entries, err := os.ReadDir(vms)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() && !running[e.Name()] {
			found = append(found, machine{e.Name(), filepath.Join(vms, e.Name()), false})
		}
	}
	return found, nil
}
