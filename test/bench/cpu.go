package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// tick is the unit of the processor times in /proc; Linux shows every program the same.
const tick = 10 * time.Millisecond

// processorTime gives how long a process has run on processors, all its threads
// together.
func processorTime(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	return parseStat(string(raw))
}

// parseStat reads user and system time of /proc/<pid>/stat. The program's name, in
// parentheses, may hold anything.
func parseStat(text string) (time.Duration, error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const user, system = 11, 12 // of the fields behind the name
	if len(fields) <= system {
		return 0, errors.New("unknown form of /proc/<pid>/stat")
	}
	var sum time.Duration
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/<pid>/stat: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// share measures what part of one core the processes use together over a time.
func share(ctx context.Context, processes []rig.QEMU, over time.Duration) (float64, error) {
	began := time.Now()
	before, err := total(processes)
	if err != nil {
		return 0, err
	}
	if !rig.Pause(ctx, over) {
		return 0, context.Cause(ctx)
	}
	after, err := total(processes)
	return float64(after-before) / float64(time.Since(began)), err
}

// total adds up the processor times.
func total(processes []rig.QEMU) (sum time.Duration, err error) {
	for _, q := range processes {
		t, err := processorTime(q.PID)
		if err != nil {
			return 0, fmt.Errorf("processor time of the QEMU of instance %s: %w", q.UUID, err)
		}
		sum += t
	}
	return sum, nil
}
