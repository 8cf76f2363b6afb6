package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/buildyard/buildyard/internal/farm"
)

// SchemaVersion is the schema of the records that this program writes. A store with a higher one is refused, unless
// its writer has marked it as readable by this program: an older program would silently drop the fields that it does
// not know.
const SchemaVersion = 1

// oldestSchemaVersion is that of the release before.
const oldestSchemaVersion = 1

// schemas are the schemas that this program supports.
var schemas = farm.SupportedVersions{
	Subject: "Record schema", Oldest: oldestSchemaVersion, Newest: SchemaVersion, Reader: "this controller",
	IfNewer: "start the release that wrote the records, or restore a backup from before that upgrade",
	IfOlder: "start the release between the one that wrote the records and this one first",
}

const (
	metaKind = Kind("meta")
	schemaID = "schema"
	epochID  = "epoch"
)

// storeMeta is a record about the store itself: meta/schema has a Version and what belongs to it, meta/epoch an Epoch.
type storeMeta struct {
	Version int `json:"version,omitempty"`
	// OldestProgram is the lowest SchemaVersion of a program that may read and write the records; 0: Version.
	OldestProgram int       `json:"oldest_program,omitempty"`
	Transfer      *Transfer `json:"transfer,omitempty"`    // why the store is closed; nil: it is not
	CopiedFrom    string    `json:"copied_from,omitempty"` // epoch of the store that the records came from
	Epoch         string    `json:"epoch,omitempty"`
}

// Epoch returns the identity of the present data: it changes when a backup is restored, and
// everything that was derived from the records before (tokens, node caches) is then invalid.
func (s *Store) Epoch() string {
	m, _, ok := s.meta.Get(epochID)
	if !ok {
		return ""
	}
	return m.Epoch
}

// checkSchema refuses newer data before any record of it is read.
func (s *Store) checkSchema(ctx context.Context) error {
	schema, err := ReadSchema(ctx, s.backend, s.prefix)
	if err != nil {
		return err
	}
	return schema.Err()
}

// usableError returns why the records may not be used; nil when they may.
func (m *storeMeta) usableError() error {
	if m.Transfer != nil {
		return fmt.Errorf("%w: %s", ErrClosedForTransfer, m.Transfer)
	}
	if m.OldestProgram > 0 && m.OldestProgram <= SchemaVersion && m.Version > SchemaVersion {
		return nil
	}
	if err := schemas.Check(m.Version); err != nil {
		return fmt.Errorf("%w: %w", ErrNewerSchema, err)
	}
	return nil
}

// schemaError reports that the data has moved to a newer schema, or to another store, since Open.
func (s *Store) schemaError() error {
	if m, _, ok := s.meta.Get(schemaID); ok {
		return m.usableError()
	}
	return nil
}

// ensureMeta writes the schema version and an epoch into a new store. Another replica may do so at the same moment.
func (s *Store) ensureMeta(ctx context.Context) error {
	wanted := map[string]*storeMeta{schemaID: {Version: SchemaVersion}, epochID: {Epoch: rand.Text()}}
	for id, m := range wanted {
		if _, _, ok := s.meta.Get(id); ok {
			continue
		}
		err := s.Commit(ctx, Put(s.meta, id, m, IfAbsent))
		if errors.Is(err, ErrConflict) {
			_, _, err = s.meta.GetLinearizable(ctx, id)
		}
		if err != nil {
			return fmt.Errorf("write %s/%s: %w", metaKind, id, err)
		}
	}
	return s.schemaError()
}
