package idempotency

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

// Request identifies a request by its client's idempotency key.
type Request struct {
	ID     string // of the name and what it is for; the id of a record
	Digest string // of the parameters
	Caller string // whose limits it counts against; "": the totals alone count

	over int64 // revision of a record that no longer counts; 0: there was none
}

// Options configure Keys. One caller may have a quarter of each maximum.
type Options struct {
	MaxKeys  int // stored records; beyond half of it the oldest are removed
	MaxBytes int // of all responses; 0: DefaultMaxBytes

	// Terminate ends an instance of a start that died half-way, of which no client knows.
	Terminate func(ctx context.Context, w store.Writer, id string) error
}

// Retention is how long a key is recognized.
const Retention = 24 * time.Hour

// DefaultMaxBytes is the default of Options.MaxBytes.
const DefaultMaxBytes = 128 << 20

const (
	abandoned  = 2 * time.Minute  // after which a start that has not ended is considered dead
	retryAfter = 30 * time.Second // when a caller that has reached a limit is asked to try again
)

// Keys are the stored idempotency keys.
type Keys struct {
	db   record.DB
	opts Options
}

// New returns the keys in a database.
func New(db record.DB, opts Options) *Keys {
	opts.MaxBytes = cmp.Or(opts.MaxBytes, DefaultMaxBytes)
	return &Keys{db, opts}
}

type contextKey struct{}

// WithRequest returns the context of a request with an idempotency key.
func WithRequest(ctx context.Context, req Request) context.Context {
	return context.WithValue(ctx, contextKey{}, req)
}

// Lookup returns the response of an earlier request with the same key; ok is false without one: then
// ask is ready for WithRequest. With linearizable, it reads the store itself.
func (k *Keys) Lookup(
	ctx context.Context, ask *Request, linearizable bool,
) (answer json.RawMessage, ok bool, err error) {
	kept, rev, there := k.db.Tables.Idempotency.Get(ask.ID)
	if !there && linearizable {
		if kept, rev, err = k.db.Tables.Idempotency.GetLinearizable(ctx, ask.ID); err != nil {
			return nil, false, err
		}
	}
	ask.over = rev
	switch {
	case kept == nil:
		return nil, false, k.admit(ask.Caller)
	case k.db.Now().Sub(kept.At) >= Retention:
		return nil, false, nil
	case kept.Digest != ask.Digest:
		return nil, false, farm.Refused("This Idempotency-Key was used for a different request: use a new key")
	case len(kept.Instances) == 0:
		return kept.Answer, true, nil
	case k.db.Now().Sub(kept.At) < abandoned:
		return nil, false, farm.Refused("A request with this Idempotency-Key is in progress: try again in a moment")
	}
	return nil, false, k.terminateAll(ctx, k.db.Store, kept.Instances)
}

// admit refuses a new request with an idempotency key of a caller that has reached its limit of
// stored ones.
func (k *Keys) admit(caller string) error {
	const setting, remedy = "SVC_MAX_IDEMPOTENCY_KEYS", "leave the key out, or try again in a few minutes"
	view, most := k.db.Tables.Idempotency.Snapshot(), k.opts.MaxKeys
	if mine := view.Sum(record.IdempotencyByCaller, caller)[0]; caller != "" && mine >= farm.CallerShare(most) {
		return farm.Busy(retryAfter, "You have %d stored requests with an Idempotency-Key, the limit per caller: "+
			"a quarter of the setting %s (%d); %s", mine, setting, most, remedy)
	}
	if view.Len() >= most {
		return farm.Busy(retryAfter, "Limit of %d stored requests with an Idempotency-Key reached (setting %s); %s",
			most, setting, remedy)
	}
	return nil
}

// terminateAll ends the instances of a start that died half-way, of which no client knows.
func (k *Keys) terminateAll(ctx context.Context, w store.Writer, ids []string) error {
	for _, id := range ids {
		if err := k.opts.Terminate(ctx, w, id); err != nil && farm.CodeOf(err) != farm.CodeNotFound {
			return err
		}
	}
	return nil
}

// Write stores the result of a request that is being carried out. nil: nothing, since the request has
// no idempotency key.
type Write struct {
	db   record.DB
	id   string
	kept record.IdempotencyRecord
	cond store.Condition
}

// Prepare prepares the record of a request with its response.
func (k *Keys) Prepare(ctx context.Context, answer any) (*Write, error) {
	ask, ok := ctx.Value(contextKey{}).(Request)
	if !ok {
		return nil, nil
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &Write{db: k.db, id: ask.ID, kept: record.IdempotencyRecord{
		Caller: ask.Caller, Digest: ask.Digest, Answer: text, At: k.db.Now(),
	}, cond: store.IfRev(ask.over)}, nil
}

// Changes returns the changes that record a request with its response; they join its transaction.
func (k *Keys) Changes(ctx context.Context, answer any) ([]store.Change, error) {
	w, err := k.Prepare(ctx, answer)
	return w.Changes(), err
}

// Changes returns the changes that join the transaction of the request.
func (w *Write) Changes() []store.Change {
	if w == nil {
		return nil
	}
	kept := w.kept
	return []store.Change{store.Put(w.db.Tables.Idempotency, w.id, &kept, w.cond)}
}

// Begun returns the first changes of a start that takes more than one transaction.
func (w *Write) Begun(instances []string) []store.Change {
	if w == nil {
		return nil
	}
	kept := w.kept
	kept.Instances = instances
	return []store.Change{store.Put(w.db.Tables.Idempotency, w.id, &kept, w.cond)}
}

// End writes the end of a start that Begun has recorded: with its response, or as if it had not
// been requested.
func (w *Write) End(ctx context.Context, failed error) error {
	if w == nil {
		return nil
	}
	kept := w.kept
	change := store.Put(w.db.Tables.Idempotency, w.id, &kept, store.Any)
	if failed != nil {
		change = store.Delete(w.db.Tables.Idempotency, w.id, store.Any)
	}
	return w.db.Store.Commit(context.WithoutCancel(ctx), change)
}

// Prune removes records that are too old, or too many, the oldest first, and ends the instances
// of starts that died.
func (k *Keys) Prune(ctx context.Context, w *record.Term, now time.Time) error {
	var expired []string
	var all []expiredKey
	for id, r := range k.db.Tables.Idempotency.All() {
		if len(r.Instances) > 0 && now.Sub(r.At) >= abandoned {
			if err := k.terminateAll(ctx, w, r.Instances); err != nil {
				return err
			}
			expired = append(expired, id)
			continue
		}
		all = append(all, expiredKey{id, r.Caller, r.At, len(r.Answer)})
	}
	expired = append(expired, expiredIDs(all, now, k.opts.MaxKeys/2, k.opts.MaxBytes)...)
	for some := range slices.Chunk(expired, record.TxnChanges) {
		changes := make([]store.Change, len(some))
		for i, id := range some {
			changes[i] = store.Delete(k.db.Tables.Idempotency, id, store.Any)
		}
		if err := w.Commit(ctx, changes...); err != nil {
			return err
		}
	}
	return nil
}

// expiredIDs returns the records that are too old, those beyond the limit of one caller, and then
// those beyond the limit of all.
func expiredIDs(all []expiredKey, now time.Time, most, mostBytes int) (expired []string) {
	slices.SortFunc(all, func(a, b expiredKey) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.id, b.id)) })
	count, bytes := map[string]int{}, map[string]int{} // by caller
	for _, k := range all {
		count[k.caller]++
		bytes[k.caller] += k.bytes
	}
	drop := func(k expiredKey) {
		expired = append(expired, k.id)
		count[k.caller]--
		bytes[k.caller] -= k.bytes
	}
	all = slices.DeleteFunc(all, func(k expiredKey) bool {
		over := k.caller != "" &&
			(count[k.caller] > farm.CallerShare(most) || bytes[k.caller] > farm.CallerShare(mostBytes))
		if over = over || now.Sub(k.at) >= Retention; over {
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
	return expired
}

// expiredKey is an idempotency record that may be removed.
type expiredKey struct {
	id, caller string
	at         time.Time
	bytes      int
}
