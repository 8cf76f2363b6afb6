package host

import (
	"time"

	"golang.org/x/sys/unix"
)

func memoryMB() int {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int(n >> 20) //nolint:gosec // memory sizes fit
}

func freeMemoryMB() int {
	pages, err := unix.SysctlUint32("vm.page_free_count")
	if err != nil {
		return 0
	}
	return int(uint64(pages) * uint64(unix.Getpagesize()) >> 20) //nolint:gosec // memory sizes fit
}

// osVersion returns the version of macOS, without its build: updates that change only that are rare.
func osVersion() string {
	version, err := unix.Sysctl("kern.osproductversion")
	if err != nil || version == "" {
		return ""
	}
	return "macOS " + version
}

// processorName returns the name of the chip.
func processorName() string {
	name, err := unix.Sysctl("machdep.cpu.brand_string")
	if err != nil {
		return ""
	}
	return name
}

// processUsage: macOS reports the times of other processes only through libproc, which needs cgo; a node
// there reports no utilization.
func processUsage(int) (used time.Duration, resident int64, ok bool) { return 0, 0, false }
