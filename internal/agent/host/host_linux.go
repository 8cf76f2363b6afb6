package host

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is how many units of processor time the kernel shows for one second; it is
// 100 on every architecture that Go supports.
const ticksPerSecond = 100

func memoryMB() int { return readMeminfo("MemTotal:") }

func freeMemoryMB() int { return readMeminfo("MemAvailable:") }

func readMeminfo(key string) int {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(raw) {
		fields := bytes.Fields(line)
		if len(fields) >= 2 && string(fields[0]) == key {
			kb, _ := strconv.Atoi(string(fields[1]))
			return kb / 1024
		}
	}
	return 0
}

// osVersion returns the name that the distribution shows to readers: os-release(5).
func osVersion() string {
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if raw, err := os.ReadFile(path); err == nil {
			return valueOf(raw, "PRETTY_NAME", "=")
		}
	}
	return ""
}

// processorName returns the name of the first processor. Kernels of arm64 show none.
func processorName() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	return valueOf(raw, "model name", ":")
}

// valueOf returns the first value of a key in lines of a key, a separator and a value that may be quoted.
func valueOf(text []byte, key, separator string) string {
	for line := range bytes.Lines(text) {
		name, value, found := strings.Cut(string(line), separator)
		if found && strings.TrimSpace(name) == key {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return ""
}

// processUsage reads /proc/<pid>/stat: see proc(5), fields 14 and 15 (utime, stime) and 24 (rss, pages).
// The name in field 2 may contain any characters, so counting starts after its closing bracket.
func processUsage(pid int) (used time.Duration, resident int64, ok bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, false
	}
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) < 22 {
		return 0, 0, false
	}
	user, _ := strconv.ParseInt(string(fields[11]), 10, 64)
	system, _ := strconv.ParseInt(string(fields[12]), 10, 64)
	pages, _ := strconv.ParseInt(string(fields[21]), 10, 64)
	return time.Duration(user+system) * time.Second / ticksPerSecond, pages * int64(os.Getpagesize()), true
}
