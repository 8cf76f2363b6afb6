package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// closedVersion is the schema version of a store that is closed for a transfer: every program refuses
// it, also one that does not know transfers.
const closedVersion = 1_000_000

// TransferState is how far the records of a store have come from or to another one.
type TransferState string

// The states of a transfer.
const (
	TransferIncoming TransferState = "incoming" // they are being copied into this store: it is incomplete
	TransferOutgoing TransferState = "outgoing" // they are being copied from this store: it is complete
	TransferMoved    TransferState = "moved"    // they are in the other store now
)

// Transfer is why no Store opens on a backend. It is stored in place of the schema version, so that
// closing and opening a store is one compare-and-swap.
type Transfer struct {
	State         TransferState `json:"state"`
	Peer          string        `json:"peer"` // the other store, or the backup, for people
	StartedAt     time.Time     `json:"started_at"`
	SchemaVersion int           `json:"schema_version"` // of the records
}

// String returns a sentence for operators.
func (t *Transfer) String() string {
	since := t.StartedAt.UTC().Format(time.RFC3339)
	switch t.State {
	case TransferIncoming:
		return fmt.Sprintf("records are being copied into it from %s since %s; run that command again to complete the "+
			"copy", t.Peer, since)
	case TransferOutgoing:
		return fmt.Sprintf("its records are being copied to %s since %s; run \"buildyard store migrate\" again, or "+
			"with --cancel to keep them here", t.Peer, since)
	}
	return fmt.Sprintf("its records were moved to %s; start the controllers with that store", t.Peer)
}

// Schema is the state of the schema record of a backend.
type Schema struct {
	rev  int64 // of the record; 0: there is none
	meta storeMeta
}

// ReadSchema reads the schema record. prefix is that of Options.
func ReadSchema(ctx context.Context, backend Backend, prefix string) (Schema, error) {
	kv, err := backend.Get(ctx, metaKey(prefix, schemaID))
	if err != nil {
		return Schema{}, fmt.Errorf("read the schema version: %w", err)
	}
	s := Schema{rev: kv.ModRev}
	if kv.ModRev == 0 {
		return s, nil
	}
	if err := json.Unmarshal(kv.Value, &s.meta); err != nil {
		return Schema{}, fmt.Errorf("read the schema version: %w", err)
	}
	return s, nil
}

// ReadEpoch reads the epoch of the records; empty without one.
func ReadEpoch(ctx context.Context, backend Backend, prefix string) (string, error) {
	kv, err := backend.Get(ctx, metaKey(prefix, epochID))
	if err != nil || kv.ModRev == 0 {
		return "", err
	}
	var m storeMeta
	if err := json.Unmarshal(kv.Value, &m); err != nil {
		return "", fmt.Errorf("read the epoch: %w", err)
	}
	return m.Epoch, nil
}

// metaKey returns the backend key of a record about the store.
func metaKey(prefix, id string) string {
	return RecordPrefix(prefix) + string(metaKind) + "/" + id
}

// RecordPrefix returns the common beginning of the keys of all records. prefix is that of Options.
func RecordPrefix(prefix string) string {
	if prefix = strings.TrimRight(prefix, "/"); prefix == "" {
		prefix = DefaultPrefix
	}
	return prefix + "/v1/"
}

// IsMetaKey reports whether a backend key is of a record about the store: a copy of records has its own.
func IsMetaKey(prefix, key string) bool {
	return key == metaKey(prefix, schemaID) || key == metaKey(prefix, epochID)
}

// Exists reports whether a Store has ever written into the backend.
func (s Schema) Exists() bool { return s.rev != 0 }

// Transfer returns why the store is closed; nil when it is not.
func (s Schema) Transfer() *Transfer { return s.meta.Transfer }

// CopiedFrom returns the epoch of the store that the records were copied from; empty when they were not.
func (s Schema) CopiedFrom() string { return s.meta.CopiedFrom }

// Version returns the schema version of the records, also of a closed store.
func (s Schema) Version() int {
	if s.meta.Transfer != nil {
		return s.meta.Transfer.SchemaVersion
	}
	return s.meta.Version
}

// Err returns why no Store of this program opens the records; nil when one does.
func (s Schema) Err() error { return s.meta.usableError() }

// CompleteErr returns why the records cannot be copied or restored; nil when they can. Those of a
// closed store are complete unless they were being copied into it.
func (s Schema) CompleteErr() error {
	switch t := s.meta.Transfer; {
	case s.rev == 0:
		return ErrNoRecords
	case t == nil:
		return s.Err()
	case t.State == TransferIncoming:
		return fmt.Errorf("the records are incomplete: %s", t)
	}
	reopened := storeMeta{Version: s.Version()}
	return reopened.usableError()
}

// Condition returns the condition that the store is still in this state, for a transaction.
func (s Schema) Condition(prefix string) Compare {
	return Compare{Key: metaKey(prefix, schemaID), ModRev: s.rev}
}

// Close closes the store for a transfer, or changes the transfer it is closed for.
func (s Schema) Close(ctx context.Context, backend Backend, prefix string, t Transfer) (Schema, error) {
	t.SchemaVersion = s.Version()
	if !s.Exists() {
		t.SchemaVersion = SchemaVersion
	}
	if s.meta.Transfer != nil {
		t.StartedAt = s.meta.Transfer.StartedAt
	}
	next := storeMeta{Version: closedVersion, Transfer: &t, CopiedFrom: s.meta.CopiedFrom}
	return s.replace(ctx, backend, prefix, next, nil)
}

// Reopen opens a closed store again, with the records and the epoch that it has.
func (s Schema) Reopen(ctx context.Context, backend Backend, prefix string) (Schema, error) {
	return s.replace(ctx, backend, prefix, storeMeta{Version: s.Version(), CopiedFrom: s.meta.CopiedFrom}, nil)
}

// WithVersion returns s for records of another schema version, which the next Open writes.
func (s Schema) WithVersion(version int) Schema {
	s.meta.Version = version
	if s.meta.Transfer != nil {
		t := *s.meta.Transfer
		t.SchemaVersion = version
		s.meta.Transfer = &t
	}
	return s
}

// Open opens a store whose records are complete now, under another epoch. copiedFrom is the epoch of
// the store that they came from; empty: they were restored from a backup.
func (s Schema) Open(ctx context.Context, backend Backend, prefix, epoch, copiedFrom string) (Schema, error) {
	data, err := json.Marshal(storeMeta{Epoch: epoch})
	if err != nil {
		return Schema{}, err
	}
	next := storeMeta{Version: s.Version(), CopiedFrom: copiedFrom}
	return s.replace(ctx, backend, prefix, next, []KV{{Key: metaKey(prefix, epochID), Value: data}})
}

// replace writes the schema record, and others in the same transaction, if it is still the one of s.
func (s Schema) replace(
	ctx context.Context, backend Backend, prefix string, next storeMeta, others []KV,
) (Schema, error) {
	data, err := json.Marshal(next)
	if err != nil {
		return Schema{}, err
	}
	rev, err := backend.Commit(ctx, Txn{
		Compares: []Compare{s.Condition(prefix)},
		Puts:     append([]KV{{Key: metaKey(prefix, schemaID), Value: data}}, others...),
	})
	switch {
	case errors.Is(err, ErrConflict):
		return Schema{}, fmt.Errorf("another process opened or closed the store concurrently: %w", err)
	case err != nil:
		return Schema{}, fmt.Errorf("write the schema version: %w", err)
	}
	return Schema{rev: rev, meta: next}, nil
}
