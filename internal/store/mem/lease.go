package mem

import (
	"context"
	"fmt"
	"sync"

	"github.com/buildyard/buildyard/internal/store"
)

// lease is a held lock. It has no time to live: a process that dies takes the backend with it.
type lease struct {
	backend *Backend
	fence   store.Fence
	once    sync.Once
	lost    chan struct{}
}

var _ store.Lease = (*lease)(nil)

// Campaign implements store.Backend.
func (b *Backend) Campaign(ctx context.Context, key string) (store.Lease, error) {
	for {
		rev, changed, err := b.acquire(ctx, key)
		if err != nil {
			return nil, err
		}
		if rev > 0 {
			return b.newLease(store.Fence{Key: key, CreateRev: rev}), nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for lease %s: %w", key, context.Cause(ctx))
		case <-changed:
		}
	}
}

// acquire creates the key, or returns a channel that closes when it is worth another try.
func (b *Backend) acquire(ctx context.Context, key string) (rev int64, changed <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkOpenLocked(ctx); err != nil {
		return 0, nil, err
	}
	if _, held := b.keys[key]; held {
		return 0, b.changed, nil
	}
	return b.applyLocked(store.Txn{Puts: []store.KV{{Key: key}}}), nil, nil
}

func (b *Backend) newLease(fence store.Fence) *lease {
	return &lease{backend: b, fence: fence, lost: make(chan struct{})}
}

// Fence implements store.Lease.
func (l *lease) Fence() store.Fence { return l.fence }

// Lost implements store.Lease.
func (l *lease) Lost() <-chan struct{} { return l.lost }

// Resign implements store.Lease.
func (l *lease) Resign(context.Context) error {
	l.once.Do(func() {
		l.backend.ExpireLease(l.fence)
		close(l.lost)
	})
	return nil
}

// ExpireLease takes the lock from its holder without notice, like a pause longer than the time to live.
func (b *Backend) ExpireLease(fence store.Fence) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keys[fence.Key].createRev == fence.CreateRev {
		b.applyLocked(store.Txn{Deletes: []string{fence.Key}})
	}
}
