package authstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// kindKey is the kind of the records of API keys; their IDs are those of the keys.
const kindKey = store.Kind("y")

// keyTable is the table of API keys.
type keyTable = store.Table[cachedRecord[farm.APIKey]]

func newKeyTable() *keyTable {
	return newTable(kindKey, func(k farm.APIKey) ([]byte, error) { return json.Marshal(k) }, decodeKey)
}

var errKeyForm = errors.New("record has no complete API key")

func decodeKey(raw []byte) (farm.APIKey, error) {
	var k farm.APIKey
	if err := json.Unmarshal(raw, &k); err != nil {
		return farm.APIKey{}, errKeyForm
	}
	if k.ID == "" || k.Generation == "" || len(k.PublicKey) == 0 || k.Expires.IsZero() {
		return farm.APIKey{}, errKeyForm
	}
	return k, nil
}

// keyDamage returns why the record of an ID is not a valid key; nil when it is.
func keyDamage(id string, r *cachedRecord[farm.APIKey]) error {
	switch {
	case r.Damage != nil:
		return unreadable(kindKey, id, r.Damage)
	case r.Value.ID != id:
		return unreadable(kindKey, id, errors.New("record is of another API key"))
	}
	return nil
}

// Keys are the API keys that all replicas share.
type Keys struct {
	store *store.Store
	table *keyTable

	mu       sync.Mutex // guards the fields below
	watchers []func(id string)
}

var _ auth.KeyStore = (*Keys)(nil)

// Get implements auth.KeyStore.
func (k *Keys) Get(id string) (farm.APIKey, bool) {
	key, _, ok := k.getWithRevision(id)
	return key, ok
}

func (k *Keys) getWithRevision(id string) (key farm.APIKey, rev int64, ok bool) {
	r, rev, ok := k.table.Get(id)
	if !ok || keyDamage(id, r) != nil {
		return farm.APIKey{}, 0, false
	}
	return r.Value, rev, true
}

// List implements auth.KeyStore.
func (k *Keys) List() []farm.APIKey {
	view := k.table.Snapshot()
	out := make([]farm.APIKey, 0, view.Len())
	for id, r := range view.All() {
		if keyDamage(id, r) == nil {
			out = append(out, r.Value)
		}
	}
	return out
}

// Create implements auth.KeyStore.
func (k *Keys) Create(ctx context.Context, key farm.APIKey) error {
	return k.commitChange(ctx, store.Put(k.table, key.ID, newCachedRecord(key), store.IfAbsent), auth.ErrKeyExists)
}

// Replace implements auth.KeyStore.
func (k *Keys) Replace(ctx context.Context, old, key farm.APIKey) error {
	now, rev, ok := k.getWithRevision(old.ID)
	if !ok || !auth.SameKey(now, old) || key.ID != old.ID {
		return auth.ErrKeyChanged
	}
	return k.commitChange(ctx, store.Put(k.table, key.ID, newCachedRecord(key), store.IfRev(rev)), auth.ErrKeyChanged)
}

// Delete implements auth.KeyStore.
func (k *Keys) Delete(ctx context.Context, old farm.APIKey) error {
	now, rev, ok := k.getWithRevision(old.ID)
	if !ok || !auth.SameKey(now, old) {
		return auth.ErrKeyChanged
	}
	return k.commitChange(ctx, store.Delete(k.table, old.ID, store.IfRev(rev)), auth.ErrKeyChanged)
}

// commitChange makes a change, and returns lost when another one was first. In either case this replica
// has then seen the current records.
func (k *Keys) commitChange(ctx context.Context, c store.Change, lost error) error {
	err := k.store.Commit(ctx, c)
	if errors.Is(err, store.ErrConflict) {
		if err := k.store.Barrier(ctx); err != nil {
			return fmt.Errorf("read API keys again: %w", err)
		}
		return lost
	}
	if err != nil {
		return fmt.Errorf("store a key: %w", err)
	}
	return waitDelivered(ctx, k.store)
}

// Watch implements auth.KeyStore.
func (k *Keys) Watch(changed func(id string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watchers = append(k.watchers, changed)
}

// notifyWatchers notifies the watchers of a key that was replaced or deleted.
func (k *Keys) notifyWatchers(id string) {
	k.mu.Lock()
	watchers := k.watchers // it only ever grows
	k.mu.Unlock()
	for _, changed := range watchers {
		changed(id)
	}
}
