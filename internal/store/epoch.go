package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrNoRecords means that data is of another program, or of none.
var ErrNoRecords = errors.New("the store has no Buildyard records")

// StartNewEpoch prepares restored data for use: it sets another epoch, and removes the leases and
// half transactions of the processes that wrote the data. It refuses data of a newer schema, and
// data that no Store has written. No Store may be open on the backend. prefix is that of Options.
func StartNewEpoch(ctx context.Context, backend Backend, prefix string) (epoch string, err error) {
	s, err := newStore(backend, Options{Prefix: prefix})
	if err != nil {
		return "", err
	}
	if err := s.checkSchema(ctx); err != nil {
		return "", err
	}
	switch kv, err := backend.Get(ctx, s.recordKey(metaKind, schemaID)); {
	case err != nil:
		return "", fmt.Errorf("read the schema version: %w", err)
	case kv.ModRev == 0:
		return "", ErrNoRecords
	}
	for _, dir := range []string{"/lease/", "/slot/"} {
		if err := deletePrefix(ctx, backend, s.prefix+dir); err != nil {
			return "", fmt.Errorf("remove leases and commit slots of the backup: %w", err)
		}
	}
	epoch = rand.Text()
	data, err := json.Marshal(storeMeta{Epoch: epoch})
	if err != nil {
		return "", err
	}
	if _, err := backend.Commit(ctx, Txn{Puts: []KV{{Key: s.recordKey(metaKind, epochID), Value: data}}}); err != nil {
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
