package store

import (
	"context"
	"io"

	"github.com/buildyard/buildyard/internal/farm"
)

// Snapshotter is a Backend that can be backed up.
type Snapshotter interface {
	// Snapshot streams the whole backend as it is at this moment, in the form of package backup.
	// size is the approximate length. The caller must keep reading the stream and close it: the
	// backend cannot reuse freed space while it is open.
	Snapshot(ctx context.Context) (stream io.ReadCloser, size int64, err error)
}

// Snapshot backs up everything on the backend; see Snapshotter.
func (s *Store) Snapshot(ctx context.Context) (stream io.ReadCloser, size int64, err error) {
	b, ok := s.backend.(Snapshotter)
	if !ok {
		return nil, 0, farm.Errorf(farm.CodeRefused, "This store cannot be backed up")
	}
	return b.Snapshot(ctx)
}

// HistoryTrimmer is a Backend that may delete records to free space when it is full.
type HistoryTrimmer interface {
	// SetExpendable sets which keys the backend may delete: oldest returns at most n of them, in
	// the order of their deletion, and none when nothing is left.
	SetExpendable(oldest func(n int) []string)
}

// trimHistory allows the backend to delete the records of a table, the last ones first.
func (s *Store) trimHistory(table AnyTable) {
	b, ok := s.backend.(HistoryTrimmer)
	if !ok || table == nil {
		return
	}
	b.SetExpendable(func(n int) (keys []string) {
		for id := range table.ids() {
			keys = append(keys, s.key(table.Kind(), id))
		}
		return keys[max(0, len(keys)-n):]
	})
}
