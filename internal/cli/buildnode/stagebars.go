package buildnode

import (
	"io"
	"sync"

	"github.com/buildyard/buildyard/internal/transfer"
)

// stageBars shows the bars of an operation with several steps, one below the other: a step's bar
// ends when the next one begins. Its methods may be called from any goroutine.
type stageBars struct {
	w io.Writer

	mu  sync.Mutex   // guards the field below
	bar *progressBar // nil before the first step
}

// stage returns a function that shows the progress of a step.
func (s *stageBars) stage(label string) func(done, total int64) {
	var own *progressBar
	return func(done, total int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if own == nil {
			s.endLocked()
			own = newProgressBar(s.w, label)
			s.bar = own
		}
		own.update(done, total)
	}
}

// bytes is stage for the progress of a transfer.
func (s *stageBars) bytes(label string) func(transfer.Progress) {
	show := s.stage(label)
	return func(p transfer.Progress) { show(p.Done, p.Total) }
}

// end leaves the last state on the screen.
func (s *stageBars) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked()
}

func (s *stageBars) endLocked() {
	if s.bar != nil {
		s.bar.end()
	}
	s.bar = nil
}
