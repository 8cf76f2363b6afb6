package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the processor times in /proc; Linux shows every program the same.
const tick = 10 * time.Millisecond

// ProcessorTime returns how long a process has run on processors, all its threads
// together.
func ProcessorTime(pid int) (time.Duration, error) {
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

// MachineTime returns how long the processors of this machine have worked, all of them together.
func MachineTime() (time.Duration, error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseMachineStat(string(raw))
}

// parseMachineStat reads the first line of /proc/stat: user, nice, system, idle, iowait, irq and softirq.
func parseMachineStat(text string) (time.Duration, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, errors.New("unknown form of /proc/stat")
	}
	var sum time.Duration
	for _, i := range []int{1, 2, 3, 6, 7} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// FreeMemory returns the bytes of memory that programs can still get on this machine.
func FreeMemory() (int64, error) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	return parseKB(string(raw), "MemAvailable:", "/proc/meminfo")
}

// Memory returns the bytes of a process that are in memory now, its resident set.
func Memory(pid int) (int64, error) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	return parseKB(string(raw), "VmRSS:", "/proc/<pid>/status")
}

// parseKB reads the line of a file that begins with a key and has a number of kB.
func parseKB(text, key, file string) (int64, error) {
	for line := range strings.Lines(text) {
		value, ok := strings.CutPrefix(line, key)
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		return kb << 10, nil
	}
	return 0, fmt.Errorf("%s has no %s", file, key)
}
