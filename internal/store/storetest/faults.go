package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/buildyard/buildyard/internal/store"
)

// Fault is what happens to one commit in transit.
type Fault int

// The faults; all except Refuse return store.ErrUnknownOutcome.
const (
	LoseReply   Fault = iota + 1 // it is applied, the response is lost
	LoseRequest                  // it never arrives
	ArriveLate                   // it is applied when Late is called
	Refuse                       // it is refused with store.ErrUnavailable
)

// Faults is a backend that can be disturbed.
type Faults struct {
	store.Backend

	mu      sync.Mutex
	commits int           // that were requested
	plan    []Fault       // of the next commits
	late    []store.Txn   // delayed by ArriveLate
	gate    chan struct{} // commits wait here while not nil
	waiting int           // at the gate
	flying  []store.Txn   // running
	broken  []string      // rules of the committer that a transaction broke
	stall   chan struct{} // what watches deliver waits here while not nil
	cut     chan struct{} // closed: watches break and cannot begin
}

// NewFaults returns a wrapper without any faults.
func NewFaults(b store.Backend) *Faults {
	return &Faults{Backend: b, cut: make(chan struct{})}
}

// Next plans the faults of the next commits, one each.
func (f *Faults) Next(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = append(f.plan, faults...)
}

// HoldCommits makes commits wait until Mend.
func (f *Faults) HoldCommits() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gate == nil {
		f.gate = make(chan struct{})
	}
}

// StallWatch delays the events of all watches until Mend; they stay open.
func (f *Faults) StallWatch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stall == nil {
		f.stall = make(chan struct{})
	}
}

// CutWatch breaks running watches and refuses new ones until Mend.
func (f *Faults) CutWatch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.cut)
}

// Mend ends every fault except the planned ones.
func (f *Faults) Mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, gate := range []*chan struct{}{&f.gate, &f.stall} {
		if *gate != nil {
			close(*gate)
			*gate = nil
		}
	}
	if f.isCutLocked() {
		f.cut = make(chan struct{})
	}
}

func (f *Faults) isCutLocked() bool {
	select {
	case <-f.cut:
		return true
	default:
		return false
	}
}

// Commits returns the number of transactions sent so far.
func (f *Faults) Commits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commits
}

// Waiting returns the number of commits delayed by HoldCommits.
func (f *Faults) Waiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}

// Commit implements store.Backend.
func (f *Faults) Commit(ctx context.Context, txn store.Txn) (int64, error) {
	defer f.takeOff(txn)()
	if err := f.pass(ctx); err != nil {
		return 0, err
	}
	switch f.fate(txn) {
	case LoseRequest, ArriveLate:
		return 0, fmt.Errorf("%w: injected", store.ErrUnknownOutcome)
	case Refuse:
		return 0, fmt.Errorf("%w: injected", store.ErrUnavailable)
	case LoseReply:
		if _, err := f.Backend.Commit(ctx, txn); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("%w: injected", store.ErrUnknownOutcome)
	}
	return f.Backend.Commit(ctx, txn)
}

// takeOff checks the committer's guarantees: at most two concurrent transactions, no key in both,
// the backend's limits.
func (f *Faults) takeOff(txn store.Txn) (land func()) {
	limit := f.Limits().MaxOps
	f.mu.Lock()
	defer f.mu.Unlock()
	if writes, compares := len(keysOf(txn)), len(txn.Compares)+1; writes > limit || compares > limit {
		f.broken = append(f.broken, fmt.Sprintf("%d writes and %d compares in a transaction", writes, compares))
	}
	if len(f.flying) >= 2 {
		f.broken = append(f.broken, fmt.Sprintf("%d transactions under way", len(f.flying)+1))
	}
	for _, other := range f.flying {
		for _, key := range keysOf(other) {
			if slices.Contains(keysOf(txn), key) {
				f.broken = append(f.broken, key+" is in two transactions under way")
			}
		}
	}
	f.flying = append(f.flying, txn)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.flying = slices.DeleteFunc(f.flying,
			func(one store.Txn) bool { return slices.Equal(keysOf(one), keysOf(txn)) })
	}
}

// keysOf returns the keys that a transaction writes.
func keysOf(txn store.Txn) []string {
	keys := slices.Clone(txn.Deletes)
	for _, kv := range txn.Puts {
		keys = append(keys, kv.Key)
	}
	return keys
}

// Broken returns the guarantees of the committer that were violated.
func (f *Faults) Broken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken
}

func (f *Faults) pass(ctx context.Context) error {
	f.mu.Lock()
	f.commits++
	gate := f.gate
	if gate != nil {
		f.waiting++
	}
	f.mu.Unlock()
	if gate == nil {
		return nil
	}
	defer func() {
		f.mu.Lock()
		f.waiting--
		f.mu.Unlock()
	}()
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, context.Cause(ctx))
	}
}

func (f *Faults) fate(txn store.Txn) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.plan) == 0 {
		return 0
	}
	fault := f.plan[0]
	f.plan = f.plan[1:]
	if fault == ArriveLate {
		f.late = append(f.late, txn)
	}
	return fault
}

// Late delivers the oldest delayed commit, and returns the result of the backend.
func (f *Faults) Late(ctx context.Context) error {
	f.mu.Lock()
	txn := f.late[0]
	f.late = f.late[1:]
	f.mu.Unlock()
	_, err := f.Backend.Commit(ctx, txn)
	return err
}

// Watch implements store.Backend.
func (f *Faults) Watch(ctx context.Context, prefix string, from int64, fn func(store.WatchBatch) error) error {
	f.mu.Lock()
	cut, broken := f.cut, f.isCutLocked()
	f.mu.Unlock()
	if broken {
		return fmt.Errorf("%w: watch is cut", store.ErrUnavailable)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-cut:
			cancel(fmt.Errorf("%w: watch is cut", store.ErrUnavailable))
		case <-ended:
		}
	}()
	return f.Backend.Watch(ctx, prefix, from, func(b store.WatchBatch) error {
		f.mu.Lock()
		stall := f.stall
		f.mu.Unlock()
		if stall != nil {
			select {
			case <-stall:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return fn(b)
	})
}
