// Package s3backend makes a prefix of a bucket the storage of a registry: it puts lease, metadata and layers together.
//
// It is not a registry and evaluates no request.
//
// Invariant: nothing below the prefix is read before this process owns the lease, and the loss of the lease is
// reported once.
package s3backend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/blob/disk"
	"github.com/buildyard/buildyard/internal/blob/s3"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/layout/objects"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/s3store"
)

// idFile has the ID with which the directory owns a prefix.
const idFile = "owner-id"

// releaseTimeout is how long Close tries to release the lease.
const releaseTimeout = 5 * time.Second

// Backend is a registry.Backend in a bucket.
type Backend struct {
	bucket *s3store.Bucket
	log    *slog.Logger

	ctx    context.Context // ends with the backend
	cancel context.CancelFunc
	work   sync.WaitGroup
	lease  *s3store.Lease
	meta   *objects.Metadata
	store  *s3.Store
	failed chan error
}

var _ registry.Backend = (*Backend)(nil)

// New checks the options; it sends no request.
func New(o s3store.Options) (*Backend, error) {
	bucket, err := s3store.New(o)
	if err != nil {
		return nil, err
	}
	b := &Backend{bucket: bucket, log: bucket.Options().Logger, failed: make(chan error, 1)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// Name names the storage in messages.
func (b *Backend) Name() string { return b.bucket.String() }

// Failed delivers the error after which the process must end: another registry owns the prefix.
func (b *Backend) Failed() <-chan error { return b.failed }

func (b *Backend) fail(err error) {
	select {
	case b.failed <- fmt.Errorf("the storage %s cannot be used any longer: %w", b.Name(), err):
	default:
	}
}

// Attach implements registry.Backend.
func (b *Backend) Attach(ctx context.Context, dir *layout.Dir, address string) (blob.Store, error) {
	if err := markLocalCopy(dir, b.Name()); err != nil {
		return nil, err
	}
	id, err := ownerID(dir)
	if err != nil {
		return nil, err
	}
	if err := b.bucket.CheckBucket(ctx); err != nil {
		return nil, err
	}
	if err := b.bucket.SelfTest(ctx); err != nil {
		return nil, err
	}
	if err := b.acquire(ctx, id, address); err != nil {
		return nil, err
	}
	if !b.bucket.Options().KeepLifecycle {
		if err := b.bucket.ApplyLifecycle(ctx); err != nil {
			b.log.WarnContext(ctx, "lifecycle rule of the bucket not set; incomplete uploads stay until the next start",
				"error", err)
		}
	}
	b.meta = objects.New(b.ctx, b.bucket, b.lease, dir) //nolint:contextcheck // it outlives ctx
	if err := b.meta.Load(ctx); err != nil {
		return nil, fmt.Errorf("read the metadata of %s: %w", b.Name(), err)
	}
	dir.SetRemote(b.meta)
	b.store, err = s3.Open(b.ctx, s3.Options{ //nolint:contextcheck // its uploads outlive ctx
		Bucket: b.bucket, Lease: b.lease, Dir: dir, Staging: disk.New(dir), ConfirmPurge: b.confirmPurge,
		MinTrashAge: 2 * b.lease.Duration(),
	})
	if err != nil {
		return nil, fmt.Errorf("read the layers of %s: %w", b.Name(), err)
	}
	return b.store, nil
}

// acquire gets the lease and renews it until Close.
func (b *Backend) acquire(ctx context.Context, id, address string) error {
	host, _ := os.Hostname() // for messages only
	lease, err := b.bucket.Acquire(ctx, s3store.Owner{ID: id, Host: host, Address: address})
	if err != nil {
		return err
	}
	b.lease = lease
	b.log.InfoContext(ctx, "bucket owned", "bucket", b.Name(), "epoch", lease.Epoch())
	b.work.Go(func() { lease.Run(b.ctx) })
	b.work.Go(func() {
		select {
		case <-b.ctx.Done():
		case <-lease.Lost():
			b.fail(s3store.ErrLeaseLost)
		}
	})
	return nil
}

// confirmPurge returns an error unless this process still owns the prefix and knows all templates in it.
func (b *Backend) confirmPurge(ctx context.Context) error {
	err := b.lease.Confirm(ctx)
	if errors.Is(err, s3store.ErrLeaseLost) {
		b.fail(err)
	}
	if err != nil {
		return err
	}
	return b.meta.CheckUnchanged(ctx)
}

// Close implements registry.Backend.
func (b *Backend) Close() error {
	b.cancel()
	if b.store != nil {
		b.store.Wait()
	}
	b.work.Wait()
	if b.lease == nil {
		return nil
	}
	lease := b.lease
	b.lease = nil
	if lease.Valid() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if err := lease.Release(ctx); err != nil {
		b.log.Warn("lease of the bucket not released; another registry waits until it expires", "error", err)
	}
	return nil
}

// ownerID returns the ID of the directory. A copy of the directory on another machine has another host, but the same
// ID: it must not be used for a second registry.
func ownerID(dir *layout.Dir) (string, error) {
	raw, err := dir.Root().ReadFile(idFile)
	if err == nil && len(raw) > 8 {
		return strings.TrimSpace(string(raw)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read %s: %w", idFile, err)
	}
	id := strings.ToLower(rand.Text())
	return id, dir.WriteFile("tidy", idFile, []byte(id+"\n"))
}
