package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/retry"
)

const (
	callTimeout   = 5 * time.Second // one call of the backend
	probeInterval = time.Second
	minBackoff    = 20 * time.Millisecond
	maxBackoff    = time.Second
	// maxProbeAge is the time without an answer of the backend after which the tables may be out of date. A proxy needs
	// another 2 s to notice.
	maxProbeAge = 3 * time.Second
)

// errRevisionWentBack ends a watch because the backend's revision fell behind what the model has seen.
var errRevisionWentBack = errors.New("the revision of the store backend went backwards (restored from a backup?)")

// healthState is what Healthy reports.
type healthState struct {
	mu          sync.Mutex
	watchErr    error // why the watch does not run; nil while it does
	probeErr    error
	probedAt    time.Time               // when the last successful probe began; zero: none ended yet
	cancelWatch context.CancelCauseFunc // ends the running watch
}

// Healthy returns why the tables may be out of date or writes fail, nil when all is well: the
// backend answered within the last seconds, the watch runs and keeps up, the schema is known.
func (s *Store) Healthy() error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return ErrClosed
	}
	var busy error
	if sentence := s.BlockedReason(); sentence != "" {
		busy = fmt.Errorf("%w: %s", ErrUnavailable, sentence)
	}
	return errors.Join(busy, s.WatchHealthy())
}

// WatchHealthy returns why the tables may be out of date; nil when they are not. A backend that
// refuses changes is followed as long as it answers.
func (s *Store) WatchHealthy() error {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return errors.Join(s.health.watchErr, s.health.probeError(), s.schemaError())
}

// BlockedReason returns, as a sentence for users, why the backend refuses requests although it can
// be reached: it is full, or rewrites its file. Empty: it does not refuse them.
func (s *Store) BlockedReason() string {
	if b, ok := s.backend.(interface{ BlockedReason() string }); ok {
		return b.BlockedReason()
	}
	return ""
}

// probeError returns why the backend may not be as the tables are. A probe may wait much longer than maxProbeAge. The
// caller holds mu.
func (h *healthState) probeError() error {
	age := time.Since(h.probedAt)
	if h.probeErr == nil && !h.probedAt.IsZero() && age > maxProbeAge {
		return fmt.Errorf("backend: no answer for %s", age.Round(100*time.Millisecond))
	}
	return h.probeErr
}

func (h *healthState) setWatchErr(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchErr = err
}

// watch keeps the model up to date until ctx ends, across broken streams and compactions.
func (s *Store) watch(ctx context.Context) {
	wait := retry.New(minBackoff, maxBackoff)
	for ctx.Err() == nil {
		began := time.Now()
		err := s.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		s.health.setWatchErr(fmt.Errorf("watch: %w", err))
		if errors.Is(err, ErrCompacted) || errors.Is(err, errRevisionWentBack) {
			s.log.Info("listing all records again", "reason", err)
			if err = s.relist(ctx); err == nil {
				continue
			}
		}
		s.log.Warn("watch interrupted; retrying", "error", err)
		if time.Since(began) > maxBackoff {
			wait.Reset()
		}
		_ = wait.Sleep(ctx)
	}
}

func (s *Store) watchOnce(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.health.mu.Lock()
	s.health.cancelWatch = cancel
	s.health.mu.Unlock()
	watched, _, _ := s.model.watchProgress()
	err := s.backend.Watch(ctx, s.recordPrefix, watched+1, func(b WatchBatch) error {
		s.model.applyWatched(b.Rev, s.decodeEvents(b.Events))
		s.health.setWatchErr(nil)
		return nil
	})
	if errors.Is(context.Cause(ctx), errRevisionWentBack) {
		return errRevisionWentBack
	}
	return err
}

// decodeEvents decodes the changes that the model does not have yet. Own commits return through the
// watch: they are dropped here.
func (s *Store) decodeEvents(events []RawEvent) []tableUpdate {
	ups := make([]tableUpdate, 0, len(events))
	for _, ev := range events {
		u, ok := s.updateFor(ev.KV)
		if !ok || u.table.revision(u.id) == u.rev {
			continue
		}
		if !ev.Deleted {
			s.decodeRecord(&u, ev.Value)
		}
		ups = append(ups, u)
	}
	return ups
}

// updateFor finds the table of a key. A key that matches none is ignored.
func (s *Store) updateFor(kv KV) (tableUpdate, bool) {
	rel, ok := strings.CutPrefix(kv.Key, s.recordPrefix)
	if !ok {
		return tableUpdate{}, false
	}
	kind, id, _ := strings.Cut(rel, "/")
	t := s.model.tables[Kind(kind)]
	if t == nil || id == "" {
		return tableUpdate{}, false
	}
	return tableUpdate{table: t, id: id, key: rel, rev: kv.ModRev}, true
}

// decodeRecord decodes the record. A record that cannot be decoded is left out, as if it had been deleted,
// and logged: one damaged record must not stop the cloud, an outdated one must not stay.
func (s *Store) decodeRecord(u *tableUpdate, data []byte) {
	val, err := u.table.decodeRecord(data)
	if err != nil {
		s.log.Error("unreadable record treated as deleted", "key", u.key, "revision", u.rev, "error", err)
		return
	}
	u.record = val
}

// relist makes the model equal to the backend.
func (s *Store) relist(ctx context.Context) error {
	_, highest, _ := s.model.watchProgress()
	l, err := s.list(ctx, false)
	if err != nil {
		return err
	}
	// A listing is never older than an acknowledged commit, and an epoch never changes, unless the
	// backend was restored from a backup: then an equal revision may mean another record, and
	// everything has to be decoded.
	epoch := s.Epoch()
	rewritten := l.rev < highest || (epoch != "" && l.epoch != epoch)
	if rewritten {
		s.log.Warn("store backend was replaced or restored; listing all records again", "revision", l.rev, "seen",
			highest, "epoch", l.epoch)
		if l, err = s.list(ctx, true); err != nil {
			return err
		}
	}
	s.model.replaceAll(l.rev, l.updates, l.seen, rewritten)
	return nil
}

// probeBackend reads the backend's revision every second: it detects a backend that does not answer, a
// watch that has stopped, and a backend that was restored from a backup in the running process.
func (s *Store) probeBackend(ctx context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	var due int64 // the watch must have passed this by now
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, highest, _ := s.model.watchProgress()
		began := time.Now()
		rev, err := s.backendBarrier(ctx)
		watched, _, _ := s.model.watchProgress()
		switch {
		case err != nil:
			err = fmt.Errorf("backend: %w", err)
		case rev < highest:
			s.rewind()
		case watched < due:
			err = fmt.Errorf("watch stalled at revision %d; the backend was at revision %d a second ago", watched, due)
		}
		due = rev
		s.health.mu.Lock()
		if s.health.probeErr = err; err == nil {
			s.health.probedAt = began
		}
		s.health.mu.Unlock()
	}
}

func (s *Store) rewind() {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if s.health.cancelWatch != nil {
		s.health.cancelWatch(errRevisionWentBack)
	}
}

func (s *Store) backendBarrier(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.backend.Barrier(ctx)
}
