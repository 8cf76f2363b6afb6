package host

import (
	"bytes"
	"os"
	"strconv"
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
