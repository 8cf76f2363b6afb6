package authstore

import (
	"context"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/store"
)

// kindNonce is the kind of the records of used nonces. All data of one is in its ID, in letters that
// keep the order of the bytes, so that expired ones come first.
const kindNonce = store.Kind("x")

// The bytes of a nonce record's ID: the second from which on it may be forgotten, and the nonce.
const (
	nonceTimeBytes   = 5
	nonceIDBytes     = nonceTimeBytes + len(auth.Nonce{})
	maxExpirySeconds = 1<<(8*nonceTimeBytes) - 1 // seconds since 1970
)

var nonceEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// Bounds of one Sweep: records of one commit, and of all together.
const (
	pruneChunk = 500
	maxPruned  = 20_000
)

// nonceTable is the table of nonces. Its records are empty and take no memory.
type nonceTable = store.Table[struct{}]

func newNonceTable() *nonceTable {
	return store.NewTable(kindNonce, store.WithCodec(
		func(*struct{}) ([]byte, error) { return []byte("{}"), nil },
		func([]byte) (*struct{}, error) { return &struct{}{}, nil }))
}

// Nonces are the used secrets of all replicas.
type Nonces struct {
	store            *store.Store
	table            *nonceTable
	maxRemembered    int // that are remembered at a time
	maxPrunedPerCall int // that one sweep forgets, rounded up to whole commits
}

var _ auth.NonceStore = (*Nonces)(nil)

// Use implements auth.NonceStore. The backend creates a record only when its ID is new: of all
// callers that use a nonce, on whatever replica, one is the first.
func (m *Nonces) Use(ctx context.Context, mark auth.Nonce, until time.Time) (bool, error) {
	if !until.After(time.Now()) {
		return false, nil
	}
	id, err := nonceID(mark, until)
	if err != nil {
		return false, err
	}
	if _, _, used := m.table.Get(id); used {
		return false, nil
	}
	if m.table.Len() >= m.maxRemembered {
		return false, auth.ErrNoncesFull
	}
	err = m.store.Commit(ctx, store.Put(m.table, id, &struct{}{}, store.IfAbsent))
	switch {
	case errors.Is(err, store.ErrConflict):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("store used nonce: %w", err)
	}
	return true, nil
}

// nonceID returns the ID of the record of a nonce.
func nonceID(mark auth.Nonce, until time.Time) (string, error) {
	at := until.Unix() + 1 // what is left of its last second is rounded up
	if at < 0 || at > maxExpirySeconds {
		return "", fmt.Errorf("used nonce cannot be stored until %s", until.UTC())
	}
	raw := append(timeBytes(at), mark[:]...)
	return nonceEncoding.EncodeToString(raw), nil
}

func timeBytes(seconds int64) []byte {
	raw := binary.BigEndian.AppendUint64(nil, uint64(seconds))
	return raw[len(raw)-nonceTimeBytes:]
}

// parseNonce parses the ID of a nonce's record.
func parseNonce(id string) (mark auth.Nonce, forget time.Time, err error) {
	raw, err := nonceEncoding.DecodeString(id)
	if err != nil || len(raw) != nonceIDBytes || nonceEncoding.EncodeToString(raw) != id {
		return auth.Nonce{}, time.Time{}, errors.New("record ID is not that of a used nonce")
	}
	copy(mark[:], raw[nonceTimeBytes:])
	seconds := binary.BigEndian.Uint64(append(make([]byte, 8-nonceTimeBytes), raw[:nonceTimeBytes]...))
	return mark, time.Unix(int64(seconds), 0), nil
}

// pruneExpired removes expired nonces, the oldest first, and returns their number.
func (m *Nonces) pruneExpired(ctx context.Context, now time.Time) (n int, err error) {
	for n < m.maxPrunedPerCall {
		var changes []store.Change
		for id := range m.table.All() {
			_, forget, err := parseNonce(id)
			if err != nil {
				continue
			}
			if forget.After(now) || len(changes) == min(pruneChunk, m.store.Limits().MaxOps) {
				break
			}
			changes = append(changes, store.Delete(m.table, id, store.Any))
		}
		if len(changes) == 0 {
			return n, nil
		}
		if err := m.store.Commit(ctx, changes...); err != nil {
			return n, fmt.Errorf("remove expired nonces: %w", err)
		}
		n += len(changes)
	}
	return n, nil
}
