package transfer

import (
	"sync"
	"time"
)

const (
	// progressEvery bounds how often a progress callback is called.
	progressEvery = 250 * time.Millisecond
	// rateWindow is the number of samples that a rate is computed over.
	rateWindow = 20
)

// meter counts bytes and calls a callback now and then.
type meter struct {
	call func(Progress)
	now  func() time.Time

	mu      sync.Mutex // guards the fields below; held during the callback, so that calls do not overlap
	p       Progress
	samples []sample // oldest first, at most rateWindow
}

type sample struct {
	at    time.Time
	moved int64 // bytes transferred, without those that were here before
}

func newMeter(call func(Progress), total int64) *meter {
	m := &meter{call: call, now: time.Now, p: Progress{Total: total}}
	m.samples = []sample{{at: m.now()}}
	return m
}

// skip counts bytes that were here before.
func (m *meter) skip(n int64) { m.count(n, 0) }

// add counts transferred bytes.
func (m *meter) add(n int64) { m.count(n, n) }

func (m *meter) count(done, moved int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p.Done += done
	last := &m.samples[len(m.samples)-1]
	now := m.now()
	if now.Sub(last.at) < progressEvery {
		last.moved += moved
		return
	}
	m.tell(now)
	m.samples = append(m.samples, sample{at: now, moved: moved})
	if len(m.samples) > rateWindow {
		m.samples = m.samples[1:]
	}
}

// finish reports the last state.
func (m *meter) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tell(m.now())
}

// tell calls the callback; the caller holds mu.
func (m *meter) tell(now time.Time) {
	if m.call == nil {
		return
	}
	var moved int64
	for _, s := range m.samples {
		moved += s.moved
	}
	if d := now.Sub(m.samples[0].at).Seconds(); d > 0 {
		m.p.Rate = float64(moved) / d
	}
	m.call(m.p)
}
