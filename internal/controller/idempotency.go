package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// IdempotentRequest identifies a request by its client's idempotency key, so that a repeated
// request is recognized.
type IdempotentRequest struct {
	ID     string // of the name and what it is for; the id of a record
	Digest string // of the parameters
	Caller string // whose limits it counts against; "": the totals alone count

	over int64 // revision of a record that no longer counts; 0: there was none
}

// Bounds of the idempotency records: whichever is reached first. Beyond half of
// Limits.IdempotencyKeys the oldest are removed; one caller may have a quarter of everything.
const (
	keepAsked    = 24 * time.Hour
	maxKeptBytes = 128 << 20       // of all responses
	abandoned    = 2 * time.Minute // after which a start that has not ended is considered dead
)

type askedKey struct{}

// WithIdempotency returns the context of a request with an idempotency key.
func WithIdempotency(ctx context.Context, ask IdempotentRequest) context.Context {
	return context.WithValue(ctx, askedKey{}, ask)
}

// LookupIdempotent returns the response of an earlier request with the same key; ok is false
// without one: then ask is ready for WithIdempotency. With sure, it reads the store itself.
func (c *Controller) LookupIdempotent(
	ctx context.Context, ask *IdempotentRequest, sure bool,
) (answer json.RawMessage, ok bool, err error) {
	kept, rev, there := c.tables.Idempotency.Get(ask.ID)
	if !there && sure {
		if kept, rev, err = c.tables.Idempotency.GetLinearizable(ctx, ask.ID); err != nil {
			return nil, false, err
		}
	}
	ask.over = rev
	switch {
	case kept == nil:
		return nil, false, c.admitKey(ask.Caller)
	case c.now().Sub(kept.At) >= keepAsked:
		return nil, false, nil
	case kept.Digest != ask.Digest:
		return nil, false, farm.Refused("This Idempotency-Key was used for another request: use a new one")
	case len(kept.Instances) == 0:
		return kept.Answer, true, nil
	case c.now().Sub(kept.At) < abandoned:
		return nil, false, farm.Refused("A request with this Idempotency-Key is under way: try again in a moment")
	}
	return nil, false, c.terminateAll(ctx, c.store, kept.Instances)
}

// terminateAll ends the instances of a start that died half-way, of which no client knows.
func (c *Controller) terminateAll(ctx context.Context, w store.Writer, ids []string) error {
	for _, id := range ids {
		if err := c.end(ctx, w, id); err != nil && farm.CodeOf(err) != farm.CodeNotFound {
			return err
		}
	}
	return nil
}

// idempotencyWrite stores the result of a request that is being carried out. nil: nothing, since it
// has no idempotency key.
type idempotencyWrite struct {
	c    *Controller
	id   string
	kept record.IdempotencyRecord
	cond store.Condition
}

// remember prepares the record of a request with its response.
func (c *Controller) remember(ctx context.Context, answer any) (*idempotencyWrite, error) {
	ask, named := ctx.Value(askedKey{}).(IdempotentRequest)
	if !named {
		return nil, nil
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &idempotencyWrite{c: c, id: ask.ID, kept: record.IdempotencyRecord{
		Caller: ask.Caller, Digest: ask.Digest, Answer: text, At: c.now(),
	}, cond: store.IfRev(ask.over)}, nil
}

// changes returns the changes that join the transaction of the request.
func (m *idempotencyWrite) changes() []store.Change {
	if m == nil {
		return nil
	}
	kept := m.kept
	return []store.Change{store.Put(m.c.tables.Idempotency, m.id, &kept, m.cond)}
}

// begun returns the first changes of a start that takes more than one transaction.
func (m *idempotencyWrite) begun(instances []string) []store.Change {
	if m == nil {
		return nil
	}
	kept := m.kept
	kept.Instances = instances
	return []store.Change{store.Put(m.c.tables.Idempotency, m.id, &kept, m.cond)}
}

// ended writes the end of a start that begun has recorded: with its response, or as if it had not
// been requested.
func (m *idempotencyWrite) ended(ctx context.Context, failed error) error {
	if m == nil {
		return nil
	}
	kept := m.kept
	change := store.Put(m.c.tables.Idempotency, m.id, &kept, store.Any)
	if failed != nil {
		change = store.Delete(m.c.tables.Idempotency, m.id, store.Any)
	}
	return m.c.store.Commit(context.WithoutCancel(ctx), change)
}

// tidyKept removes records that are too old, or too many, the oldest first, and ends the instances
// of starts that died.
func (c *Controller) tidyKept(ctx context.Context, w *record.Term, now time.Time) error {
	var gone []string
	var all []expiredKey
	for id, k := range c.tables.Idempotency.All() {
		if len(k.Instances) > 0 && now.Sub(k.At) >= abandoned {
			if err := c.terminateAll(ctx, w, k.Instances); err != nil {
				return err
			}
			gone = append(gone, id)
			continue
		}
		all = append(all, expiredKey{id, k.Caller, k.At, len(k.Answer)})
	}
	gone = append(gone, surplusKept(all, now, c.opts.Limits.IdempotencyKeys/2, c.opts.bounds.answers)...)
	for some := range slices.Chunk(gone, record.TxnChanges) {
		changes := make([]store.Change, len(some))
		for i, id := range some {
			changes[i] = store.Delete(c.tables.Idempotency, id, store.Any)
		}
		if err := w.Commit(ctx, changes...); err != nil {
			return err
		}
	}
	return nil
}

// surplusKept returns the records that are too old, those beyond the limit of one caller, and then
// those beyond the limit of all.
func surplusKept(all []expiredKey, now time.Time, most, mostBytes int) (gone []string) {
	slices.SortFunc(all, func(a, b expiredKey) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.id, b.id)) })
	count, bytes := map[string]int{}, map[string]int{} // by caller
	for _, k := range all {
		count[k.caller]++
		bytes[k.caller] += k.bytes
	}
	drop := func(k expiredKey) {
		gone = append(gone, k.id)
		count[k.caller]--
		bytes[k.caller] -= k.bytes
	}
	all = slices.DeleteFunc(all, func(k expiredKey) bool {
		over := k.caller != "" &&
			(count[k.caller] > farm.CallerShare(most) || bytes[k.caller] > farm.CallerShare(mostBytes))
		if over = over || now.Sub(k.at) >= keepAsked; over {
			drop(k)
		}
		return over
	})
	left, leftBytes := len(all), 0
	for _, k := range all {
		leftBytes += k.bytes
	}
	for _, k := range all {
		if left <= most && leftBytes <= mostBytes {
			break
		}
		drop(k)
		left, leftBytes = left-1, leftBytes-k.bytes
	}
	return gone
}

// expiredKey is an idempotency record that may be removed.
type expiredKey struct {
	id, caller string
	at         time.Time
	bytes      int
}
