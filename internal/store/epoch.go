package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
)

// ErrNoRecords means that data is of another program, or of none.
var ErrNoRecords = errors.New("the store has no Buildyard records")

// StartNewEpoch prepares restored data for use: it sets another epoch, and removes the leases and
// half transactions of the processes that wrote the data. It refuses data of a newer schema, and
// data that no Store has written. No Store may be open on the backend. prefix is that of Options,
// copiedFrom as in Schema.Open.
func StartNewEpoch(ctx context.Context, backend Backend, prefix, copiedFrom string) (epoch string, err error) {
	s, err := newStore(backend, Options{Prefix: prefix})
	if err != nil {
		return "", err
	}
	schema, err := ReadSchema(ctx, backend, s.prefix)
	if err != nil {
		return "", err
	}
	if err := schema.CompleteErr(); err != nil {
		return "", err
	}
	for _, dir := range []string{"/lease/", "/slot/"} {
		if err := deletePrefix(ctx, backend, s.prefix+dir); err != nil {
			return "", fmt.Errorf("remove leases and commit slots of the backup: %w", err)
		}
	}
	epoch = rand.Text()
	if _, err := schema.Open(ctx, backend, s.prefix, epoch, copiedFrom); err != nil {
		return "", fmt.Errorf("write the new epoch: %w", err)
	}
	return epoch, nil
}

func deletePrefix(ctx context.Context, backend Backend, prefix string) error {
	var keys []string
	_, err := backend.List(ctx, prefix, func(page []KV) error {
		for _, kv := range page {
			keys = append(keys, strings.Clone(kv.Key))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for len(keys) > 0 {
		n := min(len(keys), backend.Limits().MaxOps)
		if _, err := backend.Commit(ctx, Txn{Deletes: keys[:n]}); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}
