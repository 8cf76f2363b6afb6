package store

import "fmt"

// Condition is the condition of a change on the record it replaces.
type Condition int64

// The conditions without a revision; the zero value creates only.
const (
	IfAbsent Condition = 0  // the record must not exist
	Any      Condition = -1 // whatever the present record is
)

// IfRev requires that the record is still the one read at revision rev.
func IfRev(rev int64) Condition { return Condition(rev) }

// Limits of one Commit that apply to every backend; Store.Limits returns those of the present one.
const (
	MaxChanges = 120
	MaxBytes   = 1 << 20 // keys and encoded values together; also the most that one record may have
	maxIDBytes = 512
)

// reservedOps is what a transaction reserves for the committer's own key and for the fence.
const reservedOps = 128 - MaxChanges

// Limits returns how many changes, and how many bytes, one Commit may have: it always fits one
// backend transaction in addition to the committer's own key.
func (s *Store) Limits() Limits {
	return Limits{MaxOps: s.limits.MaxOps - reservedOps, MaxBytes: s.limits.MaxBytes}
}

// Change is one part of a Commit; created by Put, Delete and Check.
type Change struct {
	table     AnyTable
	id        string
	record    any // *T; nil: delete
	encoded   []byte
	condition Condition
	checkOnly bool  // only cond applies, nothing is written
	err       error // of the encoding, reported by Commit
}

// Put writes a whole record. From then on v belongs to the table and must not be changed.
func Put[T any](t *Table[T], id string, v *T, cond Condition) Change {
	c := Change{table: t, id: id, condition: cond}
	if v == nil {
		c.err = fmt.Errorf("%w: record %s/%s is nil", ErrInvalid, t.kind, id)
		return c
	}
	if c.encoded, c.err = t.codec.encode(v); c.err != nil {
		c.err = fmt.Errorf("encode %s/%s: %w", t.kind, id, c.err)
	}
	c.record = t.keptPart(v)
	return c
}

// Delete removes a record. With Any, removing a record that does not exist succeeds.
func Delete[T any](t *Table[T], id string, cond Condition) Change {
	return Change{table: t, id: id, condition: cond}
}

// Check requires that a record matches cond, and writes nothing. Any number of concurrent commits
// may check one record.
func Check[T any](t *Table[T], id string, cond Condition) Change {
	c := Change{table: t, id: id, condition: cond, checkOnly: true}
	if cond == Any {
		c.err = fmt.Errorf("%w: check of %s/%s without a condition", ErrInvalid, t.kind, id)
	}
	return c
}

// Err returns why every commit refuses the change, whatever else is in it; nil when one may accept
// it.
func (c Change) Err() error {
	switch {
	case c.err != nil:
		return c.err
	case c.id == "" || len(c.id) > maxIDBytes:
		return fmt.Errorf("%w: record ID of %d bytes: want 1 to %d", ErrInvalid, len(c.id), maxIDBytes)
	case len(c.encoded) > MaxBytes:
		return fmt.Errorf("%w: record of %d bytes: limit %d", ErrInvalid, len(c.encoded), MaxBytes)
	}
	return nil
}

// Kind returns the table of the changed record.
func (c Change) Kind() Kind { return c.table.Kind() }

// ID returns the id of the changed record.
func (c Change) ID() string { return c.id }

// Writes reports whether the change writes or deletes; one of Check does neither.
func (c Change) Writes() bool { return !c.checkOnly }

// Value returns the record that the change writes, a *T of its table; nil when it deletes or writes
// nothing.
func (c Change) Value() any { return c.record }

// Size returns how much of MaxBytes the change uses, the key's prefix estimated.
func (c Change) Size() int { return len(c.id) + len(c.encoded) + maxKeyPrefixBytes }

// maxKeyPrefixBytes bounds the bytes of the prefix and the kind of a key.
const maxKeyPrefixBytes = 128

// commitRequest is one Commit in the committer.
type commitRequest struct {
	changes []Change
	keys    []string // backend keys of changes, same order
	fence   *Fence
	bytes   int
	result  chan error // gets exactly one value; has capacity for it
}

// newCommitRequest checks the changes and works out their keys.
func (s *Store) newCommitRequest(fence *Fence, changes []Change) (*commitRequest, error) {
	if len(changes) == 0 || len(changes) > s.Limits().MaxOps {
		return nil, fmt.Errorf("%w: %d changes in one commit: want 1 to %d", ErrInvalid, len(changes),
			s.Limits().MaxOps)
	}
	r := &commitRequest{changes: changes, fence: fence, keys: make([]string, 0, len(changes)), result: make(chan error,
		1)}
	for i := range changes {
		c := &changes[i]
		if err := s.checkChange(c); err != nil {
			return nil, err
		}
		key := s.recordKey(c.table.Kind(), c.id)
		r.keys = append(r.keys, key)
		r.bytes += len(key) + len(c.encoded)
	}
	if key, twice := findDuplicate(r.keys); twice {
		return nil, fmt.Errorf("%w: record %s is changed twice in one commit", ErrInvalid, key)
	}
	if r.bytes > s.limits.MaxBytes {
		return nil, fmt.Errorf("%w: commit of %d bytes: limit %d", ErrInvalid, r.bytes, s.limits.MaxBytes)
	}
	return r, nil
}

// findDuplicate returns a key that occurs twice.
func findDuplicate(keys []string) (key string, twice bool) {
	seen := make(map[string]struct{}, len(keys))
	for _, key := range keys {
		if _, twice := seen[key]; twice {
			return key, true
		}
		seen[key] = struct{}{}
	}
	return "", false
}

func (s *Store) checkChange(c *Change) error {
	if err := c.Err(); err != nil {
		return err
	}
	if s.model.tables[c.table.Kind()] != c.table {
		return fmt.Errorf("%w: table %q is not open in this store", ErrInvalid, c.table.Kind())
	}
	return nil
}
