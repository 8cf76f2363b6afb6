package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of processor times in /proc.
const tick = 10 * time.Millisecond

// ticks returns the processor time of a process: of all its threads, and of the children
// that it waited for, which is also given alone.
func ticks(pid int) (all, children int64, err error) {
	raw, err := os.ReadFile(proc(pid, "stat"))
	if err != nil {
		return 0, 0, err
	}
	text := string(raw)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const first, behind, last = 11, 13, 14 // user and system time, then those of children
	if len(fields) <= last {
		return 0, 0, fmt.Errorf("unknown form of %s", proc(pid, "stat"))
	}
	own, err := sum(fields[first:behind])
	children, err2 := sum(fields[behind : last+1])
	return own + children, children, errors.Join(err, err2)
}

// clock returns the processor time that all threads of a process have used, those that ended too, as
// exactly as the scheduler knows it. Differences of ticks may say 10 ms of what took a thousandth of
// that: when the count before was about to turn.
func clock(pid int) (time.Duration, error) {
	const scheduler, bits = 2, 3 // CPUCLOCK_SCHED of clock_getcpuclockid(3); of all threads
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<bits|scheduler), &t); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// memory is what a process has in memory, in MB.
type memory struct {
	Anon     float64 `json:"anon_mb"`     // of no file
	Resident float64 `json:"resident_mb"` // in all
	Peak     float64 `json:"peak_mb"`     // the most resident since forget
}

func memoryOf(pid int) (m memory, err error) {
	raw, err := os.ReadFile(proc(pid, "status"))
	if err != nil {
		return m, err
	}
	found := 0
	for line := range strings.Lines(string(raw)) {
		name, rest, _ := strings.Cut(line, ":")
		to, ok := map[string]*float64{"RssAnon": &m.Anon, "VmRSS": &m.Resident, "VmHWM": &m.Peak}[name]
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return m, fmt.Errorf("%s: %w", proc(pid, "status"), err)
		}
		*to = float64(kb) / 1024
		found++
	}
	if found != 3 {
		return m, fmt.Errorf("unknown form of %s", proc(pid, "status"))
	}
	return m, nil
}

// forget begins the peak of a process again.
func forget(pid int) error { return os.WriteFile(proc(pid, "clear_refs"), []byte("5"), 0) }

func proc(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// machine is what the whole machine has done until now.
type machine struct {
	busy   int64 // ticks of all processors
	writes int64 // that disks completed
	kb     int64 // that they wrote
}

func machineNow() (m machine, err error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m, err
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	f := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal
	if len(f) < 9 || f[0] != "cpu" {
		return m, fmt.Errorf("unknown form of /proc/stat")
	}
	if m.busy, err = sum(append(f[1:4:4], f[6:8]...)); err != nil {
		return m, err
	}
	raw, err = os.ReadFile("/proc/diskstats")
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(raw)) {
		const name, writes, sectors = 2, 7, 9
		f := strings.Fields(line)
		if len(f) <= sectors || strings.HasPrefix(f[name], "loop") || strings.HasPrefix(f[name], "ram") {
			continue
		}
		n, err := sum(f[writes : writes+1])
		s, err2 := sum(f[sectors : sectors+1])
		if err != nil || err2 != nil {
			return m, fmt.Errorf("unknown form of /proc/diskstats")
		}
		m.writes, m.kb = m.writes+n, m.kb+s/2
	}
	return m, nil
}

func sum(fields []string) (total int64, err error) {
	for _, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
