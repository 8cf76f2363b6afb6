package host

import (
	"runtime"
	"runtime/debug"
	"sync"
)

const (
	// roomAtRest is what a scanner that has nothing to do may allocate before it collects.
	roomAtRest = 8 << 20
	// percentAtWork is of the collector. What a scanner holds is small, and most of what it
	// makes goes at once: the usual 100 % would spend a tenth of a scan on collecting.
	percentAtWork = 300
)

// GCTuner keeps the memory of the process, of which there is one: while somebody works, the
// collector waits until there is much to collect. At rest what is free goes back to the system, and the collector runs when
// memory is needed, not every two minutes: an idle process then uses no processor at all.
// The zero value is ready; nil leaves everything to the runtime.
type GCTuner struct {
	mu      sync.Mutex // guards the fields below
	workers int
	resting bool
	limit   int64 // of memory, as it is while somebody works
}

// begin is called before work that needs memory, and done after it.
func (c *GCTuner) begin() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers++
	if c.resting {
		c.resting = false
		debug.SetMemoryLimit(c.limit)
	}
	if c.workers == 1 {
		debug.SetGCPercent(percentAtWork)
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
	c.resting = true
	debug.SetGCPercent(-1)
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	held := int64(m.Sys - m.HeapReleased)
	c.limit = debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(c.limit, held+roomAtRest))
}

// working is begin, for a defer of what it gives.
func (c *GCTuner) working() (done func()) {
	c.begin()
	return c.done
}
