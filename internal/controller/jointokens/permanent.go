package jointokens

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	// settingOlderForm is the permanent token of a release that stored the secret.
	settingOlderForm = "join-token"
	// settingCreated exists once the first token was created, so that one that was revoked stays revoked.
	settingCreated = "join-tokens-created"
)

// Permanent returns the permanent token; "" when this replica does not have it: the store has a digest only.
func (t *Tokens) Permanent() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.permanent
}

// setPermanent replaces the permanent token of this replica, and stores it for the operator.
func (t *Tokens) setPermanent(token string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.setPermanentLocked(token)
}

func (t *Tokens) setPermanentLocked(token string) error {
	t.permanent = token
	if t.opts.StorePermanent == nil {
		return nil
	}
	return t.opts.StorePermanent(token)
}

// ensurePermanent returns the permanent token if this replica has it, and creates it at the very first start.
func (t *Tokens) ensurePermanent(ctx context.Context) (string, error) {
	if token, err := t.convertOlderForm(ctx); err != nil || token != "" {
		return token, err
	}
	if _, _, created := t.db.Tables.Settings.Get(settingCreated); !created {
		token := cmp.Or(t.opts.PermanentToken, randomHex(sha256.Size))
		made := t.newRecord(token, Request{Permanent: true, Description: "created at the first start"})
		err := t.db.Store.Commit(ctx,
			store.Put(t.db.Tables.Settings, settingCreated, &record.Setting{Value: "true"}, store.IfAbsent),
			store.Put(t.db.Tables.JoinTokens, randomHex(idBytes), made, store.IfAbsent))
		if !errors.Is(err, store.ErrConflict) {
			return token, err
		}
		if err := t.db.UpToDate(ctx); err != nil { // another replica was first
			return "", err
		}
	}
	if _, one, _ := t.find(t.opts.PermanentToken); one != nil && one.Permanent {
		return t.opts.PermanentToken, nil
	}
	return "", nil
}

// convertOlderForm replaces a token that an older release has stored by its digest. The token stays valid.
func (t *Tokens) convertOlderForm(ctx context.Context) (token string, err error) {
	older, rev, ok := t.db.Tables.Settings.Get(settingOlderForm)
	if !ok || older.Value == "" {
		return "", nil
	}
	changes := []store.Change{
		store.Delete(t.db.Tables.Settings, settingOlderForm, store.IfRev(rev)),
		store.Put(t.db.Tables.Settings, settingCreated, &record.Setting{Value: "true"}, store.Any),
	}
	if _, one, _ := t.find(older.Value); one == nil {
		made := t.newRecord(older.Value, Request{Permanent: true, Description: "from an older release"})
		changes = append(changes, store.Put(t.db.Tables.JoinTokens, randomHex(idBytes), made, store.IfAbsent))
	}
	if err := t.db.Store.Commit(ctx, changes...); !errors.Is(err, store.ErrConflict) {
		return older.Value, err
	}
	return older.Value, nil // another replica has converted it
}

// isOlderForm reports whether a secret is the token of an older release that runs next to this one.
func (t *Tokens) isOlderForm(secret string) bool {
	older, _, ok := t.db.Tables.Settings.Get(settingOlderForm)
	return ok && older.Value != "" && subtle.ConstantTimeCompare([]byte(secret), []byte(older.Value)) == 1
}

// Observe follows the records: a permanent token that was replaced or revoked is no longer kept here.
func (t *Tokens) Observe(events []store.Event) {
	for _, e := range events {
		old, ok := e.Old.(*record.JoinToken)
		if e.Kind != record.KindJoinToken || e.New != nil || !ok || !old.Permanent {
			continue
		}
		if err := t.dropPermanent(old.Digest); err != nil {
			t.db.Log.Warn("removing a revoked join token failed", "error", err)
		}
	}
}

// dropPermanent forgets the permanent token of this replica if it has a digest.
func (t *Tokens) dropPermanent(revoked string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.permanent == "" || digest(t.permanent) != revoked {
		return nil
	}
	return t.setPermanentLocked("")
}
