package transfer

import (
	"sync"
	"time"
)

// paceWeight is how much the last response counts.
const paceWeight = 0.25

// pace is how fast the registry sends to a pull. The zero value is ready; it is safe for concurrent use.
type pace struct {
	mu      sync.Mutex
	perByte float64 // seconds of a byte of one response; 0: nothing was measured
}

// note records how long a response of n bytes took.
func (p *pace) note(n int64, took time.Duration) {
	if n <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	perByte := took.Seconds() / float64(n)
	if p.perByte > 0 {
		perByte = paceWeight*perByte + (1-paceWeight)*p.perByte
	}
	p.perByte = perByte
}

// timeOf returns how long a response of n bytes takes; 0: not known.
func (p *pace) timeOf(n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.perByte * float64(n) * float64(time.Second))
}
