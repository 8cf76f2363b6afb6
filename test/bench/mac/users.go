package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// killUsers ends the processes that use files below a directory, which this run alone has started, and
// returns what they were.
func killUsers(ctx context.Context, dir string) (killed []string, err error) {
	for {
		pids, err := usersOf(dir)
		if err != nil || len(pids) == 0 {
			return killed, err
		}
		for _, pid := range pids {
			killed = append(killed, commandOf(pid))
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return killed, err
			}
		}
		if !rig.Pause(ctx, 100*time.Millisecond) {
			return killed, context.Cause(ctx)
		}
	}
}

// usersOf returns the other processes whose working directory or an open file is below a directory.
func usersOf(dir string) (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && pid != os.Getpid() && uses(pid, dir) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// uses reports whether a process uses something below a directory.
func uses(pid int, dir string) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	links := []string{filepath.Join(proc, "cwd")}
	entries, _ := os.ReadDir(filepath.Join(proc, "fd")) // none: it has ended
	for _, e := range entries {
		links = append(links, filepath.Join(proc, "fd", e.Name()))
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && (target == dir || strings.HasPrefix(target, dir+"/")) {
			return true
		}
	}
	return false
}

// commandOf returns the beginning of a process's command line.
func commandOf(pid int) string {
	raw, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	words := strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00")
	return strings.Join(words[:min(len(words), 3)], " ")
}
