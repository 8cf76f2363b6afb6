package host

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/scan/watch"
)

// answerTimeout limits the time in which a file system must answer.
const answerTimeout = 3 * time.Second

// hungMounts tracks the file systems that do not answer: of a hung program, or of an unreachable
// remote machine. A call into one of them may block indefinitely and cannot be stopped. So each is
// probed once, by a separate goroutine, and left out until it answers.
type hungMounts struct {
	mu         sync.Mutex
	probes     map[string]chan struct{}        // mount point -> closed when it has answered
	hungPoints atomic.Pointer[map[string]bool] // mount point -> it is missed: its type is not left out anyway
}

// probeAll probes the file systems, and returns the mount points that are newly missed.
func (s *hungMounts) probeAll(ctx context.Context) (fresh []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mounts, err := watch.NetworkMounts()
	if err != nil || len(mounts) == 0 {
		s.probes = nil
		s.hungPoints.Store(nil)
		return nil
	}
	before := s.probes
	s.probes = map[string]chan struct{}{}
	kept := map[string]bool{}
	var wait []chan struct{}
	for _, m := range mounts {
		q := before[m.Path]
		if q == nil || isClosed(q) {
			q = make(chan struct{})
			wait = append(wait, q)
			go func() {
				defer close(q)
				probeMount(m.Path)
			}()
		}
		s.probes[m.Path], kept[m.Path] = q, m.Reason == ""
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for _, q := range wait {
		select {
		case <-q:
		case <-ctx.Done():
		}
	}
	now := map[string]bool{}
	for point, q := range s.probes {
		if isClosed(q) {
			continue
		}
		if now[point] = kept[point]; kept[point] && !s.isHung(point) {
			fresh = append(fresh, point)
		}
	}
	s.hungPoints.Store(&now)
	return fresh
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// isHung reports whether a directory is the mount point of a hung file system.
func (s *hungMounts) isHung(dir string) bool {
	points := s.hungPoints.Load()
	if points == nil {
		return false
	}
	_, ok := (*points)[dir]
	return ok
}

// isMissed reports whether a directory is the mount point of one that would otherwise be scanned.
func (s *hungMounts) isMissed(dir string) bool {
	points := s.hungPoints.Load()
	return points != nil && (*points)[dir]
}

// contains reports whether a path is in one.
func (s *hungMounts) contains(path string) bool {
	points := s.hungPoints.Load()
	if points == nil {
		return false
	}
	for p := range *points {
		if isWithin(p, path) {
			return true
		}
	}
	return false
}

// checkHungMounts finds file systems that do not answer, and warns of them.
func (h *Host) checkHungMounts(ctx context.Context) {
	for _, point := range h.hungMounts.probeAll(ctx) {
		h.warn("the file system at " + point +
			" does not respond: its files are not scanned until a full scan finds that it responds")
	}
}
