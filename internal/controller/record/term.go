package record

import (
	"context"
	"errors"
	"time"

	"github.com/buildyard/buildyard/internal/store"
)

// Term is the time during which this replica holds the lease. It is the Writer of everything
// that only the leader may write: once another replica holds the lease, no write goes through it,
// however late it arrives.
//
// A write whose outcome stays unknown ends it: only a new leader term can determine the outcome,
// since it makes that write impossible and reads the records again.
type Term struct {
	fenced store.Writer
	since  time.Time
	over   <-chan struct{} // closed when it has ended, which may be while the lease is still held
	end    func()
}

var _ store.Writer = (*Term)(nil)

// NewTerm returns a term that writes through fenced, began at since, and has ended when over is
// closed. end ends it; it may be called more than once.
func NewTerm(fenced store.Writer, since time.Time, over <-chan struct{}, end func()) *Term {
	return &Term{fenced: fenced, since: since, over: over, end: end}
}

// Since returns when the term began.
func (t *Term) Since() time.Time { return t.since }

// End ends the term: nothing more is written through it.
func (t *Term) End() { t.end() }

// Fenced returns the writer with the fence alone. It writes as long as the lease is held, also after
// the term has ended: it is for notes on which no decision depends.
func (t *Term) Fenced() store.Writer { return t.fenced }

// Commit implements store.Writer. A leader term that has ended writes nothing, even where its lease
// would still allow it: later decisions may rely on capacity that a write of unknown outcome has
// used.
func (t *Term) Commit(ctx context.Context, changes ...store.Change) error {
	select {
	case <-t.over:
		return store.ErrFenced
	default:
	}
	err := t.fenced.Commit(ctx, changes...)
	if errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrUnknownOutcome) {
		t.end()
	}
	return err
}
