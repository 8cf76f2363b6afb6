package host

import (
	"runtime"
	"runtime/debug"
	"sync"
)

const (
	// idleHeapBytes is how many bytes an idle scanner may allocate before the collector runs.
	idleHeapBytes = 8 << 20
	// workGCPercent is the GC percentage during a scan. The live heap is small and most allocations
	// are short-lived: the default 100 % would spend a tenth of a scan on collecting.
	workGCPercent = 300
)

// GCTuner tunes the garbage collector of the process; a process has one. During work the collector
// waits until there is much to collect. At rest free memory returns to the system, and the
// collector runs when memory is needed, not every two minutes: an idle process then uses no
// processor time. The zero value is ready; nil leaves everything to the runtime.
type GCTuner struct {
	mu             sync.Mutex // guards the fields below
	workers        int
	idle           bool
	workLimitBytes int64 // memory limit during work, in bytes
}

// begin is called before work that needs memory, and done after it.
func (c *GCTuner) begin() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers++
	if c.idle {
		c.idle = false
		debug.SetMemoryLimit(c.workLimitBytes)
	}
	if c.workers == 1 {
		debug.SetGCPercent(workGCPercent)
	}
}

func (c *GCTuner) done() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.workers--; c.workers > 0 {
		return
	}
	c.idle = true
	debug.SetGCPercent(-1)
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	held := int64(m.Sys - m.HeapReleased)
	c.workLimitBytes = debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(c.workLimitBytes, held+idleHeapBytes))
}

// hold calls begin and returns done, for a defer.
func (c *GCTuner) hold() (done func()) {
	c.begin()
	return c.done
}
