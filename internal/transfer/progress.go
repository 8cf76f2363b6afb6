package transfer

import (
	"sync"
	"time"
)

const (
	// progressInterval bounds how often a progress callback is called.
	progressInterval = 250 * time.Millisecond
	// rateSamples is the number of samples that a rate is computed over.
	rateSamples = 20
)

// progressMeter counts bytes and calls a callback now and then.
type progressMeter struct {
	callback func(Progress)
	now      func() time.Time

	mu       sync.Mutex // guards the fields below; held during the callback, so that calls do not overlap
	progress Progress
	samples  []sample // oldest first, at most rateSamples
}

type sample struct {
	at          time.Time
	transferred int64 // bytes transferred, without those that were here before
}

func newProgressMeter(call func(Progress), total int64) *progressMeter {
	m := &progressMeter{callback: call, now: time.Now, progress: Progress{Total: total}}
	m.samples = []sample{{at: m.now()}}
	return m
}

// addSkipped counts bytes that were here before.
func (m *progressMeter) addSkipped(n int64) { m.addBytes(n, 0) }

// addTransferred counts transferred bytes.
func (m *progressMeter) addTransferred(n int64) { m.addBytes(n, n) }

func (m *progressMeter) addBytes(done, moved int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress.Done += done
	last := &m.samples[len(m.samples)-1]
	now := m.now()
	if now.Sub(last.at) < progressInterval {
		last.transferred += moved
		return
	}
	m.notifyLocked(now)
	m.samples = append(m.samples, sample{at: now, transferred: moved})
	if len(m.samples) > rateSamples {
		m.samples = m.samples[1:]
	}
}

// finish reports the last state.
func (m *progressMeter) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notifyLocked(m.now())
}

// notifyLocked calls the callback; the caller holds mu.
func (m *progressMeter) notifyLocked(now time.Time) {
	if m.callback == nil {
		return
	}
	var moved int64
	for _, s := range m.samples {
		moved += s.transferred
	}
	if d := now.Sub(m.samples[0].at).Seconds(); d > 0 {
		m.progress.Rate = float64(moved) / d
	}
	m.callback(m.progress)
}
