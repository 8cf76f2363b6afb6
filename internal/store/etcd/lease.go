package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/buildyard/buildyard/internal/store"
)

// leaseTTLSeconds is how long a lock outlives a holder that has died.
const leaseTTLSeconds = 3

// campaignRetry is the pause after a failed attempt to get or to await a lock.
const campaignRetry = 250 * time.Millisecond

// lease is a key that lives as long as its etcd lease is renewed.
type lease struct {
	session *concurrency.Session
	fence   store.Fence

	mu       sync.Mutex // one resignation at a time
	resigned bool
}

var _ store.Lease = (*lease)(nil)

// Fence implements store.Lease.
func (l *lease) Fence() store.Fence { return l.fence }

// Lost implements store.Lease.
func (l *lease) Lost() <-chan struct{} { return l.session.Done() }

// Resign implements store.Lease. Revoking deletes the key. A second revocation is skipped: etcd
// logs a warning for a lease that it does not have.
func (l *lease) Resign(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resigned {
		return nil
	}
	l.session.Orphan()
	err := revokeLease(ctx, l.session.Client(), l.session.Lease())
	l.resigned = err == nil
	return err
}

func revokeLease(ctx context.Context, client *clientv3.Client, id clientv3.LeaseID) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := client.Revoke(ctx, id)
	if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return fmt.Errorf("%w: revoke lease: %w", store.ErrUnavailable, err)
}

// Campaign implements store.Backend. It takes a lease only when the lock looks free, so waiting costs no renewals.
func (b *Backend) Campaign(ctx context.Context, key string) (store.Lease, error) {
	for {
		l, err := b.tryAcquire(ctx, key)
		if l != nil {
			return l, nil
		}
		if err == nil {
			continue // the lock has become free
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for lease %s: %w", key, errors.Join(context.Cause(ctx), err))
		case <-b.ctx.Done():
			return nil, fmt.Errorf("wait for lease %s: %w", key, store.ErrClosed)
		case <-time.After(campaignRetry):
		}
	}
}

// tryAcquire takes the lock if it is free, else waits until it is. A nil lease without an error means:
// try again.
func (b *Backend) tryAcquire(ctx context.Context, key string) (store.Lease, error) {
	resp, err := b.get(ctx, key)
	if err != nil {
		return nil, err
	}
	if len(resp.Kvs) > 0 {
		return nil, b.awaitDelete(ctx, key, resp.Header.Revision+1)
	}
	l, err := b.acquire(ctx, key)
	if l == nil {
		return nil, err
	}
	return l, nil
}

// errLockReleased ends the watch of a lock that was released.
var errLockReleased = errors.New("the lease was released")

func (b *Backend) awaitDelete(ctx context.Context, key string, from int64) error {
	err := b.Watch(ctx, key, from, func(batch store.WatchBatch) error {
		for _, ev := range batch.Events {
			if ev.Key == key && ev.Deleted {
				return errLockReleased
			}
		}
		return nil
	})
	if errors.Is(err, errLockReleased) {
		return nil
	}
	return err
}

// acquire creates the key under a new lease; nil when another process was first.
func (b *Backend) acquire(ctx context.Context, key string) (*lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	granted, err := b.client.Grant(ctx, leaseTTLSeconds)
	if err != nil {
		return nil, fmt.Errorf("%w: lease: %w", store.ErrUnavailable, err)
	}
	resp, err := b.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, "", clientv3.WithLease(granted.ID))).
		Commit()
	if err != nil || !resp.Succeeded {
		// Whether the key was created or not, revoking its lease removes it.
		return nil, errors.Join(err, revokeLease(b.ctx, b.client, granted.ID)) //nolint:contextcheck // also when the caller has stopped waiting
	}
	session, err := concurrency.NewSession(b.client, concurrency.WithLease(granted.ID), concurrency.WithContext(b.ctx)) //nolint:contextcheck // the lease outlives the campaign
	if err != nil {
		return nil, errors.Join(err, revokeLease(b.ctx, b.client, granted.ID)) //nolint:contextcheck // also when the caller has stopped waiting
	}
	return &lease{session: session, fence: store.Fence{Key: key, CreateRev: resp.Header.Revision}}, nil
}
