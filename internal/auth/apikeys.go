package auth

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/buildyard/buildyard/internal/farm"
)

// Limits of API keys.
const (
	MaxKeys             = 10_000
	MaxKeyID            = 128 // bytes
	MaxKeyGroups        = 100
	MaxGroupName        = 256                 // bytes
	MaxKeyTTL           = 100 * 365 * 86_400  // seconds
	expiredKeyRetention = 30 * 24 * time.Hour // how long a key that has expired can still be seen and prolonged
	maxChangeTries      = 10
)

// NewAPIKey is the input for a new key.
type NewAPIKey struct {
	ID        string
	TTL       int64 // seconds
	Groups    []string
	PublicKey string // of the client's own pair; "": a pair is made
}

// APIKeyChange is what may be changed of a key; nil fields stay as they are.
type APIKeyChange struct {
	TTL    *int64 // seconds from now
	Groups *[]string
}

// APIKeys are the API keys of a service.
type APIKeys struct {
	store      KeyStore
	generating chan struct{} // one pair is made at a time: that takes a processor for a while
	parsedKeys sync.Map      // id -> parsedPublicKey
}

// parsedPublicKey is the parsed public key of one generation of a key.
type parsedPublicKey struct {
	generation string
	key        *rsa.PublicKey
}

// NewAPIKeys returns the API keys in a store.
func NewAPIKeys(store KeyStore) *APIKeys {
	k := &APIKeys{store: store, generating: make(chan struct{}, 1)}
	store.Watch(func(id string) { k.parsedKeys.Delete(id) })
	return k
}

// List returns all keys, by id; those too that have expired, for a month.
func (k *APIKeys) List() []farm.APIKey { return k.store.List() }

// Get returns one key, or an error with the code not-found.
func (k *APIKeys) Get(id string) (farm.APIKey, error) {
	key, ok := k.store.Get(id)
	if !ok {
		return farm.APIKey{}, farm.NotFound()
	}
	return key, nil
}

// GetUnexpired returns a key that has not expired.
func (k *APIKeys) GetUnexpired(id string) (farm.APIKey, bool) {
	key, ok := k.store.Get(id)
	return key, ok && !key.Expired(time.Now())
}

// Create creates an API key. Without a public key it generates a pair and returns the private key,
// which is stored nowhere. A key of the same ID must have expired.
func (k *APIKeys) Create(ctx context.Context, n NewAPIKey) (private Secret, err error) {
	if err := n.check(); err != nil {
		return Secret{}, err
	}
	old, exists := k.store.Get(n.ID)
	if exists && !old.Expired(time.Now()) {
		return Secret{}, keyExistsError(n.ID)
	}
	if !exists && len(k.store.List()) >= MaxKeys {
		return Secret{}, farm.Refused("API key limit (%d) reached; delete some", MaxKeys)
	}
	key := farm.APIKey{ID: n.ID, Groups: distinct(n.Groups), Generation: newGeneration()}
	if n.PublicKey != "" {
		_, key.PublicKey, err = ParsePublicKey(n.PublicKey)
	} else {
		key.PublicKey, private, err = k.generateKeyPair(ctx)
	}
	if err != nil {
		return Secret{}, err
	}
	key.Created = time.Now().UTC().Round(0)
	key.Expires = key.Created.Add(time.Duration(n.TTL) * time.Second)
	if exists {
		err = k.store.Replace(ctx, old, key)
	} else {
		err = k.store.Create(ctx, key)
	}
	switch {
	case errors.Is(err, ErrKeyExists), errors.Is(err, ErrKeyChanged):
		return Secret{}, keyExistsError(n.ID)
	case err != nil:
		return Secret{}, err
	}
	return private, nil
}

func keyExistsError(id string) error {
	return farm.Refused("API key %s already exists; delete it first, or choose another ID", id)
}

// generateKeyPair makes a pair of keys when no other is being made.
func (k *APIKeys) generateKeyPair(ctx context.Context) ([]byte, Secret, error) {
	select {
	case k.generating <- struct{}{}:
		defer func() { <-k.generating }()
		return generateKeyPair()
	case <-ctx.Done():
		return nil, Secret{}, ctx.Err()
	}
}

// Update changes a key; its sessions go on, with the new groups.
func (k *APIKeys) Update(ctx context.Context, id string, c APIKeyChange) error {
	if c.TTL != nil {
		if err := checkTTL(*c.TTL); err != nil {
			return err
		}
	}
	if c.Groups != nil {
		if err := checkGroups(*c.Groups); err != nil {
			return err
		}
	}
	return k.changeRecord(id, func(old farm.APIKey) error {
		key := old
		if c.TTL != nil {
			key.Expires = time.Now().UTC().Round(0).Add(time.Duration(*c.TTL) * time.Second)
		}
		if c.Groups != nil {
			key.Groups = distinct(*c.Groups)
		}
		return k.store.Replace(ctx, old, key)
	})
}

// Delete removes a key, which ends its sessions.
func (k *APIKeys) Delete(ctx context.Context, id string) error {
	return k.changeRecord(id, func(old farm.APIKey) error { return k.store.Delete(ctx, old) })
}

// changeRecord changes the current record of a key, and retries after a concurrent change.
func (k *APIKeys) changeRecord(id string, change func(old farm.APIKey) error) error {
	for range maxChangeTries {
		old, err := k.Get(id)
		if err != nil {
			return err
		}
		if err := change(old); !errors.Is(err, ErrKeyChanged) {
			return err
		}
	}
	return farm.Errorf(farm.CodeBusy, "API key update conflict; retry")
}

// PruneExpired removes the keys that have expired a month ago, and returns their number. It is meant to be
// called periodically by a service.
func (k *APIKeys) PruneExpired(ctx context.Context) (int, error) {
	n, before := 0, time.Now().Add(-expiredKeyRetention)
	for _, key := range k.store.List() {
		if !key.Expired(before) {
			continue
		}
		if err := k.store.Delete(ctx, key); err == nil {
			n++
		} else if !errors.Is(err, ErrKeyChanged) {
			return n, err
		}
	}
	return n, nil
}

// publicKeyOf returns the parsed public key of a record.
func (k *APIKeys) publicKeyOf(key farm.APIKey) (*rsa.PublicKey, error) {
	if p, ok := k.parsedKeys.Load(key.ID); ok && p.(parsedPublicKey).generation == key.Generation {
		return p.(parsedPublicKey).key, nil
	}
	parsed, err := parseDER(key.PublicKey)
	if err != nil {
		return nil, err
	}
	k.parsedKeys.Store(key.ID, parsedPublicKey{key.Generation, parsed})
	if now, ok := k.store.Get(key.ID); !ok || now.Generation != key.Generation {
		k.parsedKeys.Delete(key.ID) // it was deleted before this was stored
	}
	return parsed, nil
}

// newGeneration returns a value that distinguishes a key from an earlier one with its ID.
func newGeneration() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (n NewAPIKey) check() error {
	if err := checkID(n.ID); err != nil {
		return err
	}
	if err := checkTTL(n.TTL); err != nil {
		return err
	}
	return checkGroups(n.Groups)
}

// checkID validates the ID of a new key. It is a user name too.
func checkID(id string) error {
	switch {
	case len(id) == 0 || len(id) > MaxKeyID:
		return farm.Invalid("id", "must have 1 to %d bytes", MaxKeyID)
	case !isPrintable(id):
		return farm.Invalid("id", "must be printable text, without leading or trailing spaces")
	case strings.EqualFold(id, RootName):
		return farm.Invalid("id", "%s is the name of the root user; choose another ID", RootName)
	}
	return nil
}

func checkTTL(ttl int64) error {
	if ttl < 1 || ttl > MaxKeyTTL {
		return farm.Invalid("ttl", "must be 1 to %d seconds", int64(MaxKeyTTL))
	}
	return nil
}

func checkGroups(groups []string) error {
	if len(groups) > MaxKeyGroups {
		return farm.Invalid("groups", "an API key may have at most %d permission groups", MaxKeyGroups)
	}
	for _, g := range groups {
		if !isValidName(g) {
			return farm.Invalid("groups",
				"each group must be printable text of 1 to %d bytes, without leading or trailing spaces",
				MaxGroupName)
		}
	}
	return nil
}

// isValidName reports whether a text can be the name of a permission group or user.
func isValidName(name string) bool {
	return name != "" && len(name) <= MaxGroupName && isPrintable(name)
}

// isPrintable reports whether a text can be shown unchanged: no control characters, none that changes
// the direction of text, no space at either end.
func isPrintable(s string) bool {
	return utf8.ValidString(s) && strings.TrimSpace(s) == s &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// distinct copies a list without duplicates.
func distinct[T comparable](list []T) []T {
	out := make([]T, 0, len(list))
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
