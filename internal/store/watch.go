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
	backoffFirst  = 20 * time.Millisecond
	backoffMax    = time.Second
)

// errRewound ends a watch because the backend's revision fell behind what the model has seen.
var errRewound = errors.New("the revision of the store backend went backwards (restored from a backup?)")

// health is what Healthy reports.
type health struct {
	mu      sync.Mutex
	watch   error // why the watch does not run; nil while it does
	probe   error
	rewound context.CancelCauseFunc // ends the running watch
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
	return errors.Join(busy, s.Following())
}

// Following returns why the tables may be out of date; nil when they are not. A backend that
// refuses changes is followed as long as it answers.
func (s *Store) Following() error {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return errors.Join(s.health.watch, s.health.probe, s.schemaError())
}

// BlockedReason returns, as a sentence for users, why the backend refuses requests although it can
// be reached: it is full, or rewrites its file. Empty: it does not refuse them.
func (s *Store) BlockedReason() string {
	if b, ok := s.backend.(interface{ BlockedReason() string }); ok {
		return b.BlockedReason()
	}
	return ""
}

func (h *health) setWatch(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watch = err
}

// watch keeps the model up to date until ctx ends, across broken streams and compactions.
func (s *Store) watch(ctx context.Context) {
	wait := retry.New(backoffFirst, backoffMax)
	for ctx.Err() == nil {
		began := time.Now()
		err := s.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		s.health.setWatch(fmt.Errorf("watch: %w", err))
		if errors.Is(err, ErrCompacted) || errors.Is(err, errRewound) {
			s.log.Info("listing all records again", "reason", err)
			if err = s.relist(ctx); err == nil {
				continue
			}
		}
		s.log.Warn("watch interrupted; retrying", "error", err)
		if time.Since(began) > backoffMax {
			wait.Reset()
		}
		_ = wait.Sleep(ctx)
	}
}

func (s *Store) watchOnce(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.health.mu.Lock()
	s.health.rewound = cancel
	s.health.mu.Unlock()
	watched, _, _ := s.model.progress()
	err := s.backend.Watch(ctx, s.root, watched+1, func(b Batch) error {
		s.model.follow(b.Rev, s.updates(b.Events))
		s.health.setWatch(nil)
		return nil
	})
	if errors.Is(context.Cause(ctx), errRewound) {
		return errRewound
	}
	return err
}

// updates decodes the changes that the model does not have yet. Own commits return through the
// watch: they are dropped here.
func (s *Store) updates(events []RawEvent) []update {
	ups := make([]update, 0, len(events))
	for _, ev := range events {
		u, ok := s.locate(ev.KV)
		if !ok || u.table.rev(u.id) == u.rev {
			continue
		}
		if !ev.Deleted {
			s.fill(&u, ev.Value)
		}
		ups = append(ups, u)
	}
	return ups
}

// locate finds the table of a key. A key that matches none is ignored.
func (s *Store) locate(kv KV) (update, bool) {
	rel, ok := strings.CutPrefix(kv.Key, s.root)
	if !ok {
		return update{}, false
	}
	kind, id, _ := strings.Cut(rel, "/")
	t := s.model.tables[Kind(kind)]
	if t == nil || id == "" {
		return update{}, false
	}
	return update{table: t, id: id, key: rel, rev: kv.ModRev}, true
}

// fill decodes the record. A record that cannot be decoded is left out, as if it had been deleted,
// and logged: one damaged record must not stop the cloud, an outdated one must not stay.
func (s *Store) fill(u *update, data []byte) {
	val, err := u.table.decode(data)
	if err != nil {
		s.log.Error("unreadable record ignored", "key", u.key, "revision", u.rev, "error", err)
		return
	}
	u.val = val
}

// relist makes the model equal to the backend.
func (s *Store) relist(ctx context.Context) error {
	_, highest, _ := s.model.progress()
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
	s.model.replace(l.rev, l.updates, l.seen, rewritten)
	return nil
}

// probe reads the backend's revision every second: it detects a backend that does not answer, a
// watch that has stopped, and a backend that was restored from a backup in the running process.
func (s *Store) probe(ctx context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	var due int64 // the watch must have passed this by now
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, highest, _ := s.model.progress()
		rev, err := s.backendBarrier(ctx)
		watched, _, _ := s.model.progress()
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
		s.health.probe = err
		s.health.mu.Unlock()
	}
}

func (s *Store) rewind() {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if s.health.rewound != nil {
		s.health.rewound(errRewound)
	}
}

func (s *Store) backendBarrier(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.backend.Barrier(ctx)
}
