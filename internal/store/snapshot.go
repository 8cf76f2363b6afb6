package store

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/farm"
)

// Snapshotter is a Backend that can be backed up.
type Snapshotter interface {
	// Snapshot streams the whole backend as it is at this moment, in the form of package backup.
	// size is the approximate length. The caller must keep reading the stream and close it: the
	// backend cannot reuse freed space while it is open.
	Snapshot(ctx context.Context) (stream io.ReadCloser, size int64, err error)
}

// Snapshot backs up everything on the backend; see Snapshotter. Only one backup runs at a time, since
// each keeps the backend from reusing space.
func (s *Store) Snapshot(ctx context.Context) (stream io.ReadCloser, size int64, err error) {
	b, ok := s.backend.(Snapshotter)
	if !ok {
		return nil, 0, farm.Errorf(farm.CodeRefused, "This store cannot be backed up")
	}
	if !s.snapshotOpen.CompareAndSwap(false, true) {
		return nil, 0, farm.Errorf(farm.CodeBusy, "Another backup is in progress; try again when it is done")
	}
	stream, size, err = b.Snapshot(ctx)
	if err != nil {
		s.snapshotOpen.Store(false)
		return nil, 0, err
	}
	return &exclusiveStream{ReadCloser: stream, open: &s.snapshotOpen}, size, nil
}

// exclusiveStream allows another backup when it is closed.
type exclusiveStream struct {
	io.ReadCloser
	open   *atomic.Bool
	closed atomic.Bool
}

// Close implements io.Closer.
func (e *exclusiveStream) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	err := e.ReadCloser.Close()
	e.open.Store(false)
	return err
}

// HistoryTrimmer is a Backend that may delete records to free space when it is full.
type HistoryTrimmer interface {
	// SetExpendable sets which keys the backend may delete: oldest returns at most n of them, in
	// the order of their deletion, and none when nothing is left.
	SetExpendable(oldest func(n int) []string)
}

// allowTrimming allows the backend to delete the records of a table, the last ones first.
func (s *Store) allowTrimming(table AnyTable) {
	b, ok := s.backend.(HistoryTrimmer)
	if !ok || table == nil {
		return
	}
	b.SetExpendable(func(n int) (keys []string) {
		for id := range table.revisions() {
			keys = append(keys, s.recordKey(table.Kind(), id))
		}
		return keys[max(0, len(keys)-n):]
	})
}
