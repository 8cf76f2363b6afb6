// Package storeadmin copies, moves and restores the records of whole stores, and checks them, while no
// controller uses them.
//
// It interprets no record, opens no connection to an etcd, and is not used by a running
// controller. The files and directories of a store are package etcd's.
//
// Invariant: a store that it has not copied completely is closed, so that no controller opens it, and
// the same command again completes it.
package storeadmin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/store"
)

// The form of the names of clusters.
const (
	ClusterNamePrefix = "etcd at "
	EndpointSeparator = ", "
)

// Side is one store of a copy. The caller opens and closes its backend.
type Side struct {
	Backend store.Backend
	Prefix  string // as store.Options.Prefix
	Name    string // an address or a directory, for people; without passwords
}

// Options are what the commands of this package share.
type Options struct {
	Logger   *slog.Logger
	Progress func(records int)                                 // called after each transaction; nil: not
	Now      func() time.Time                                  // nil: time.Now
	Settle   func(ctx context.Context) error                   // waits for commits that are under way; nil: settleTime
	Backup   func(ctx context.Context, s Side) (string, error) // stores a backup of a side before it is replaced
}

// settleTime is longer than a controller waits for a commit that it has sent.
const settleTime = 5 * time.Second

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = func(int) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Settle == nil {
		o.Settle = sleep
	}
	return o
}

// sleep waits for settleTime, or the end of ctx.
func sleep(ctx context.Context) error {
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

func (s Side) schema(ctx context.Context) (store.Schema, error) {
	schema, err := store.ReadSchema(ctx, s.Backend, s.Prefix)
	if err != nil {
		return store.Schema{}, fmt.Errorf("%s: %w", s.Name, err)
	}
	return schema, nil
}

// recordPrefix returns the common beginning of the keys of the records.
func (s Side) recordPrefix() string { return store.RecordPrefix(s.Prefix) }

// dir returns the common beginning of all keys.
func (s Side) dir() string { return strings.TrimSuffix(s.recordPrefix(), "v1/") }

// ErrInUse means that a controller uses a store that has to be at rest.
var ErrInUse = errors.New("a controller is running on this store: stop all of them first")

// checkUnused fails while a controller holds a lease. A controller that was killed holds it for
// a few seconds.
func (s Side) checkUnused(ctx context.Context) error {
	held := false
	_, err := s.Backend.List(ctx, s.dir()+"lease/", func(page []store.KV) error {
		held = held || len(page) > 0
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: look for running controllers: %w", s.Name, err)
	}
	if held {
		return fmt.Errorf("%s: %w", s.Name, ErrInUse)
	}
	return nil
}

// countRecords returns the number of records, without those about the store itself.
func (s Side) countRecords(ctx context.Context) (n int, err error) {
	_, err = s.Backend.List(ctx, s.recordPrefix(), func(page []store.KV) error {
		for _, kv := range page {
			if !store.IsMetaKey(s.Prefix, kv.Key) {
				n++
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("%s: list the records: %w", s.Name, err)
	}
	return n, nil
}
