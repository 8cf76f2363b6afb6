package store

import "context"

// KV is one key with its value in the backend.
type KV struct {
	Key    string
	Value  []byte
	ModRev int64 // revision of the last write; 0: the key does not exist
}

// Compare is a condition on one key: its ModRev must be exactly this. 0 means that the key must not exist.
type Compare struct {
	Key    string
	ModRev int64
}

// Fence ties a transaction to a held lease: the key must still be the one created at CreateRev.
type Fence struct {
	Key       string
	CreateRev int64
}

// Limits bound one transaction.
type Limits struct {
	MaxOps   int // writes, and likewise compares with the fence
	MaxBytes int // keys and values together
}

// DefaultLimits are those of an etcd with its default configuration.
var DefaultLimits = Limits{MaxOps: 128, MaxBytes: MaxBytes}

// Txn is applied as a whole or not at all. No key may be written or compared twice; the backend's
// Limits apply.
type Txn struct {
	Compares []Compare
	Fence    *Fence // nil: not fenced
	Puts     []KV   // ModRev is ignored
	Deletes  []string
}

// WatchBatch is all changes of one revision under the watched prefix. Without events it reports
// progress: every change up to and including Rev has been delivered.
type WatchBatch struct {
	Rev    int64
	Events []RawEvent
}

// RawEvent is one raw change of a key.
type RawEvent struct {
	KV
	Deleted bool // Value is empty
}

// Lease is a lock held by this process until it resigns or stops renewing it.
type Lease interface {
	// Fence returns what every write under this lease must carry: holding a lease proves nothing,
	// comparing it does.
	Fence() Fence
	// Lost is closed when the lease is known to be gone. It may close late; it never closes while the lease is safe.
	Lost() <-chan struct{}
	// Resign releases the lease, so that a waiting process gets it immediately. A second call
	// returns nil.
	Resign(ctx context.Context) error
}

// Backend is the durable, revisioned key-value store below a Store. Revisions grow by one with
// every transaction that writes, over all keys. Every method may be called from many goroutines and
// respects ctx.
type Backend interface {
	// Commit applies txn and returns its revision. Failures: *ConflictError naming every compare that failed (the
	// fence by its key), ErrUnknownOutcome, ErrUnavailable, ErrInvalid. All but ErrUnknownOutcome wrote nothing.
	Commit(ctx context.Context, txn Txn) (rev int64, err error)
	// Get reads one key linearizably. An absent key has ModRev 0 and is not an error.
	Get(ctx context.Context, key string) (KV, error)
	// List passes every key with the prefix to fn, in key order and in pages, all of one revision,
	// which it returns. The revision is not older than any commit acknowledged before the call.
	// ErrCompacted: begin again.
	List(ctx context.Context, prefix string, fn func([]KV) error) (rev int64, err error)
	// Watch calls fn with every change under prefix from revision from on, in order, one revision
	// per call, until ctx ends, fn fails or the stream breaks. Its first call is an empty batch of
	// revision from-1: the watch is established. ErrCompacted: changes after from are lost, list
	// again. It never returns nil.
	Watch(ctx context.Context, prefix string, from int64, fn func(WatchBatch) error) error
	// Barrier returns the current revision, linearizably, and makes running watches report progress up to it soon.
	Barrier(ctx context.Context) (rev int64, err error)
	// Limits returns how much one transaction may hold. They never change.
	Limits() Limits
	// Campaign waits until this process holds the lock on key and returns it.
	Campaign(ctx context.Context, key string) (Lease, error)
	// Close frees the backend's resources. No call may be running.
	Close() error
}
