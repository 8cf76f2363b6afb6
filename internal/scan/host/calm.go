package host

import (
	"runtime"
	"runtime/debug"
	"sync"
)

// roomAtRest is what a scanner that has nothing to do may allocate before it collects.
const roomAtRest = 8 << 20

// Calm keeps the memory of the process, of which there is one: while somebody works, the collector runs as it
// does anywhere. At rest what is free goes back to the system, and the collector runs when
// memory is needed, not every two minutes: an idle process then uses no processor at all.
// The zero value is ready; nil leaves everything to the runtime.
type Calm struct {
	mu      sync.Mutex // guards the fields below
	workers int
	resting bool
	percent int   // of the collector, as it is while somebody works
	limit   int64 // likewise
}

// begin is called before work that needs memory, and done after it.
func (c *Calm) begin() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers++
	if c.resting {
		c.resting = false
		debug.SetMemoryLimit(c.limit)
		debug.SetGCPercent(c.percent)
	}
}

func (c *Calm) done() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.workers--; c.workers > 0 {
		return
	}
	c.resting = true
	c.percent = debug.SetGCPercent(-1)
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	held := int64(m.Sys - m.HeapReleased)
	c.limit = debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(c.limit, held+roomAtRest))
}

// working is begin, for a defer of what it gives.
func (c *Calm) working() (done func()) {
	c.begin()
	return c.done
}
