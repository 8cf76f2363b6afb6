package authstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// kindRing is the kind of the signing keys; there is one record.
const (
	kindRing = store.Kind("z")
	ringID   = "ring"
)

// maxTries is how often a change is made again when another replica was first.
const maxTries = 20

// signingKeys is the signing keys of the cluster. Printing it shows no secret.
type signingKeys struct {
	// Epoch is that of the store when the keys were made. Records of another one came out of
	// a backup.
	Epoch string
	Ring  auth.KeyRing
}

// storedSigningKeys is signing as it is stored.
type storedSigningKeys struct {
	Epoch string          `json:"epoch"`
	Ring  json.RawMessage `json:"ring"` // with its secrets
}

type ringTable = store.Table[cachedRecord[signingKeys]]

func newRingTable() *ringTable { return newTable(kindRing, encodeSigning, decodeSigning) }

func encodeSigning(s signingKeys) ([]byte, error) {
	ring, err := s.Ring.Encode()
	if err != nil {
		return nil, err
	}
	return json.Marshal(storedSigningKeys{s.Epoch, ring})
}

// decodeSigning decodes the record. Its errors contain nothing of it.
func decodeSigning(raw []byte) (signingKeys, error) {
	var in storedSigningKeys
	if err := json.Unmarshal(raw, &in); err != nil || in.Epoch == "" {
		return signingKeys{}, errors.New("record has no signing keys")
	}
	ring, err := auth.ParseKeyRing(in.Ring)
	if err != nil {
		return signingKeys{}, err
	}
	return signingKeys{in.Epoch, ring}, nil
}

// keyRing is the signing keys of the cluster and the signer that follows them.
type keyRing struct {
	store  *store.Store
	table  *ringTable
	log    *slog.Logger
	signer *auth.Signer // nil until open has returned

	mu sync.Mutex // held while the table is read for the signer
}

// open makes the keys unless there are some, and the signer.
func (r *keyRing) open(ctx context.Context) error {
	if err := r.ensureKeys(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s, _, err := r.currentKeys()
	if err == nil {
		r.signer = auth.NewSigner(s.Ring)
	}
	return err
}

var errNoRing = unreadable(kindRing, ringID, errors.New("record was removed"))

// currentKeys returns the current keys and the revision of their record.
func (r *keyRing) currentKeys() (signingKeys, int64, error) {
	got, rev, ok := r.table.Get(ringID)
	switch {
	case !ok:
		return signingKeys{}, 0, errNoRing
	case got.Damage != nil:
		return signingKeys{}, 0, unreadable(kindRing, ringID, got.Damage)
	}
	return got.Value, rev, nil
}

// ensureKeys makes the keys when there are none, and replaces keys from a backup: nonces of secrets
// that were used after the backup are lost, and with new keys these secrets are void. Replicas that
// do so concurrently end with the same keys.
func (r *keyRing) ensureKeys(ctx context.Context) error {
	for range maxTries {
		s, rev, err := r.currentKeys()
		cond := store.IfRev(rev)
		switch epoch := r.store.Epoch(); {
		case errors.Is(err, errNoRing):
			cond = store.IfAbsent
		case err != nil:
			return err
		case s.Epoch == epoch:
			return nil
		default:
			r.log.WarnContext(ctx,
				"the store was restored from a backup: creating new signing keys; all sessions end")
		}
		err = r.storeRing(ctx, auth.NewKeyRing(time.Now()), cond)
		if err == nil || !errors.Is(err, store.ErrConflict) {
			return err
		}
		if err := r.store.Barrier(ctx); err != nil {
			return fmt.Errorf("read signing keys again: %w", err)
		}
	}
	return farm.Errorf(farm.CodeBusy, "Signing key update conflict; retry")
}

func (r *keyRing) storeRing(ctx context.Context, next auth.KeyRing, cond store.Condition) error {
	err := r.store.Commit(ctx, store.Put(r.table, ringID, newCachedRecord(signingKeys{r.store.Epoch(), next}), cond))
	if err != nil {
		return fmt.Errorf("store signing keys: %w", err)
	}
	return waitDelivered(ctx, r.store)
}

// rotateKeys adds a signing key, which signs a minute later, unless another replica does so at the same
// time. Existing signatures stay valid for their lifetime.
func (r *keyRing) rotateKeys(ctx context.Context) error {
	if err := r.ensureKeys(ctx); err != nil {
		return err
	}
	s, rev, err := r.currentKeys()
	if err != nil {
		return err
	}
	if s.Ring.Full() {
		return farm.Refused("Signing key replacement limit for one day reached; try again tomorrow")
	}
	err = r.storeRing(ctx, s.Ring.Rotated(time.Now()), store.IfRev(rev))
	if !errors.Is(err, store.ErrConflict) {
		return err
	}
	if err := r.store.Barrier(ctx); err != nil {
		return fmt.Errorf("read signing keys again: %w", err)
	}
	return waitDelivered(ctx, r.store)
}

// rotateIfOld rotates keys that are old.
func (r *keyRing) rotateIfOld(ctx context.Context) error {
	s, _, err := r.currentKeys()
	if err != nil || !s.Ring.NeedsRotation(time.Now()) {
		return err
	}
	r.log.InfoContext(ctx,
		"creating a new signing key; existing sessions stay valid")
	return r.rotateKeys(ctx)
}

// updateSigner has the signer use the current keys. Keys that cannot be read change nothing: the previous
// ones are the best that there are.
func (r *keyRing) updateSigner() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.signer == nil {
		return
	}
	s, _, err := r.currentKeys()
	if err != nil {
		r.log.Error("reading new signing keys failed; the current ones stay in use", "error", err)
		return
	}
	r.signer.ReplaceRing(s.Ring)
}
