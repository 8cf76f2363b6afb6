package auth

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/farm"
)

// KeyStore stores the records of API keys permanently. Reads are from memory and see a change
// before the call that made it returns. A change is durable when its call returns without an error;
// after an error it is unknown whether it is.
type KeyStore interface {
	// Get returns the key of an id.
	Get(id string) (farm.APIKey, bool)
	// List returns all keys, by id.
	List() []farm.APIKey
	// Create adds a key; ErrKeyExists when its ID exists.
	Create(ctx context.Context, k farm.APIKey) error
	// Replace replaces a record by another of the same ID; ErrKeyChanged when old is not what is
	// stored.
	Replace(ctx context.Context, old, k farm.APIKey) error
	// Delete removes a key; ErrKeyChanged when it is not what is stored.
	Delete(ctx context.Context, old farm.APIKey) error
	// Watch registers a function that is called with the ID of each key that was replaced or
	// deleted, by whichever replica. It is called from one goroutine at a time and must not block.
	Watch(changed func(id string))
}

// The refusals of a KeyStore.
var (
	ErrKeyExists  = errors.New("an API key with this ID exists")
	ErrKeyChanged = errors.New("the API key was changed or deleted concurrently")
)

// SameKey reports whether two records are the same.
func SameKey(a, b farm.APIKey) bool {
	return a.ID == b.ID && a.Generation == b.Generation && a.Created.Equal(b.Created) && a.Expires.Equal(b.Expires) &&
		slices.Equal(a.Groups, b.Groups) && bytes.Equal(a.PublicKey, b.PublicKey)
}

// keyMap maps IDs to records; it is replaced, never changed.
type keyMap map[string]farm.APIKey

// KeyTable is a KeyStore in memory.
type KeyTable struct {
	save func([]farm.APIKey) error
	keys atomic.Pointer[keyMap]

	mu       sync.Mutex // of changes; guards the fields below
	watchers []func(id string)
}

var _ KeyStore = (*KeyTable)(nil)

// NewKeyTable makes a table of keys. save makes all of them durable before a change is
// seen; nil: nothing is.
func NewKeyTable(keys []farm.APIKey, save func([]farm.APIKey) error) *KeyTable {
	t := &KeyTable{save: save}
	m := keyMap{}
	for _, k := range keys {
		m[k.ID] = k
	}
	t.keys.Store(&m)
	return t
}

// Get implements KeyStore.
func (t *KeyTable) Get(id string) (farm.APIKey, bool) {
	k, ok := (*t.keys.Load())[id]
	return k, ok
}

// List implements KeyStore.
func (t *KeyTable) List() []farm.APIKey { return t.keys.Load().list() }

func (m keyMap) list() []farm.APIKey {
	return slices.SortedFunc(maps.Values(m), func(a, b farm.APIKey) int { return cmp.Compare(a.ID, b.ID) })
}

// Create implements KeyStore.
func (t *KeyTable) Create(_ context.Context, k farm.APIKey) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.Get(k.ID); ok {
		return ErrKeyExists
	}
	return t.change(func(m keyMap) { m[k.ID] = k })
}

// Replace implements KeyStore.
func (t *KeyTable) Replace(_ context.Context, old, k farm.APIKey) error {
	return t.changeUnmodified(old, func(m keyMap) { m[k.ID] = k })
}

// Delete implements KeyStore.
func (t *KeyTable) Delete(_ context.Context, old farm.APIKey) error {
	return t.changeUnmodified(old, func(m keyMap) { delete(m, old.ID) })
}

// changeUnmodified changes a key that is still what it was.
func (t *KeyTable) changeUnmodified(old farm.APIKey, do func(keyMap)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now, ok := t.Get(old.ID); !ok || !SameKey(now, old) {
		return ErrKeyChanged
	}
	if err := t.change(do); err != nil {
		return err
	}
	for _, changed := range t.watchers {
		changed(old.ID)
	}
	return nil
}

func (t *KeyTable) change(do func(keyMap)) error {
	m := maps.Clone(*t.keys.Load())
	do(m)
	if t.save != nil {
		if err := t.save(m.list()); err != nil {
			return err
		}
	}
	t.keys.Store(&m)
	return nil
}

// Watch implements KeyStore.
func (t *KeyTable) Watch(changed func(id string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers = append(t.watchers, changed)
}
