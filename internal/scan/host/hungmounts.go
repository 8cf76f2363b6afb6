package host

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/scan/watch"
)

// answerTime limits the time in which a file system must answer.
const answerTime = 3 * time.Second

// hungMounts tracks the file systems that do not answer: of a hung program, or of an unreachable
// remote machine. A call into one of them may block indefinitely and cannot be stopped. So each is
// probed once, by a separate goroutine, and left out until it answers.
type hungMounts struct {
	mu     sync.Mutex
	asked  map[string]chan struct{}        // mount point -> closed when it has answered
	points atomic.Pointer[map[string]bool] // mount point -> it is missed: its type is not left out anyway
}

// look probes the file systems, and returns the mount points that are newly missed.
func (s *hungMounts) look(ctx context.Context) (fresh []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mounts, err := watch.IsNetworkFS()
	if err != nil || len(mounts) == 0 {
		s.asked = nil
		s.points.Store(nil)
		return nil
	}
	before := s.asked
	s.asked = map[string]chan struct{}{}
	kept := map[string]bool{}
	var wait []chan struct{}
	for _, m := range mounts {
		q := before[m.Path]
		if q == nil || over(q) {
			q = make(chan struct{})
			wait = append(wait, q)
			go func() {
				defer close(q)
				probe(m.Path)
			}()
		}
		s.asked[m.Path], kept[m.Path] = q, m.Why == ""
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	for _, q := range wait {
		select {
		case <-q:
		case <-ctx.Done():
		}
	}
	now := map[string]bool{}
	for point, q := range s.asked {
		if over(q) {
			continue
		}
		if now[point] = kept[point]; kept[point] && !s.is(point) {
			fresh = append(fresh, point)
		}
	}
	s.points.Store(&now)
	return fresh
}

func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// is reports whether a directory is the mount point of a hung file system.
func (s *hungMounts) is(folder string) bool {
	points := s.points.Load()
	if points == nil {
		return false
	}
	_, ok := (*points)[folder]
	return ok
}

// missed reports whether a directory is the mount point of one that would otherwise be scanned.
func (s *hungMounts) missed(folder string) bool {
	points := s.points.Load()
	return points != nil && (*points)[folder]
}

// has reports whether a path is in one.
func (s *hungMounts) has(path string) bool {
	points := s.points.Load()
	if points == nil {
		return false
	}
	for p := range *points {
		if within(p, path) {
			return true
		}
	}
	return false
}

// lookAround finds file systems that do not answer, and warns of them.
func (h *Host) lookAround(ctx context.Context) {
	for _, point := range h.silent.look(ctx) {
		h.warn("the file system at " + point +
			" does not answer: what lies there is not seen until a full scan finds that it does")
	}
}
