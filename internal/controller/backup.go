package controller

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/farm"
)

// Backup streams everything in the store as it is at this moment; size is the approximate length.
// The caller must keep reading the stream and close it. Only one runs at a time: the store cannot
// reuse freed space while it is read.
func (c *Controller) Backup(ctx context.Context) (stream io.ReadCloser, size int64, err error) {
	if !c.backing.CompareAndSwap(false, true) {
		return nil, 0, farm.Errorf(farm.CodeBusy, "Another backup is in progress; try again when it is done")
	}
	stream, size, err = c.store.Snapshot(ctx)
	if err != nil {
		c.backing.Store(false)
		return nil, 0, err
	}
	return &exclusiveBackup{ReadCloser: stream, backing: &c.backing}, size, nil
}

// exclusiveBackup allows another backup when it is closed.
type exclusiveBackup struct {
	io.ReadCloser
	backing *atomic.Bool
	closed  atomic.Bool
}

// Close implements io.Closer.
func (b *exclusiveBackup) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	err := b.ReadCloser.Close()
	b.backing.Store(false)
	return err
}
