package jointokens

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Limits of the tokens.
const (
	MaxTokens      = 1000
	MaxLifetime    = 30 * 24 * time.Hour
	MaxDescription = 255 // bytes
)

// idBytes is the length of a token's ID in random bytes. It is long enough that two tokens never have the same one.
const idBytes = 8

// Options configure Tokens. All fields are optional.
type Options struct {
	// PermanentToken is the permanent token as this replica has stored it; "": it has none. A new cloud begins
	// with it.
	PermanentToken string
	// StorePermanent stores the permanent token for the operator of this machine; with "" it removes one that is
	// no longer valid. nil: it is not stored.
	StorePermanent func(token string) error
}

// Tokens are the join tokens of a cloud.
type Tokens struct {
	db   record.DB
	opts Options

	mu        sync.Mutex // guards the field below and what StorePermanent stores
	permanent string     // "": this replica does not have it
}

// New returns the tokens in a database. It creates the permanent one at the very first start.
func New(ctx context.Context, db record.DB, opts Options) (*Tokens, error) {
	t := &Tokens{db: db, opts: opts}
	token, err := t.ensurePermanent(ctx)
	if err != nil {
		return nil, err
	}
	return t, t.setPermanent(token)
}

// Request describes a token to create.
type Request struct {
	Lifetime    time.Duration // 0: it does not expire
	Once        bool          // it registers one node
	Permanent   bool          // it replaces the permanent token; the options above must not be set
	Description string
	By          string // name of the caller
}

// Create creates a token. Its response is the only one that contains the secret.
func (t *Tokens) Create(ctx context.Context, req Request) (api.JoinToken, error) {
	var none api.JoinToken
	switch {
	case req.Permanent && (req.Once || req.Lifetime != 0):
		return none, farm.Invalid("replace",
			"the permanent token neither expires nor works only once; remove ttl and once")
	case !req.Permanent && t.db.Tables.JoinTokens.Len() >= MaxTokens:
		return none, farm.Refused("Join token limit (%d) reached; revoke one first", MaxTokens)
	}
	secret, id := randomHex(sha256.Size), randomHex(idBytes)
	made := t.newRecord(secret, req)
	changes := []store.Change{store.Put(t.db.Tables.JoinTokens, id, made, store.IfAbsent)}
	if req.Permanent {
		if err := t.db.UpToDate(ctx); err != nil {
			return none, farm.Unavailable(err, "The store cannot be reached; try again")
		}
		changes = append(changes, t.deletePermanent()...)
	}

	if err := t.db.Store.Commit(ctx, changes...); err != nil {
		return none, err
	}
	if req.Permanent {
		if err := t.setPermanent(secret); err != nil {
			t.db.Log.WarnContext(ctx, "storing the new join token failed", "error", err)
		}
	}
	out := view(id, made)
	out.Token = secret
	return out, nil
}

// newRecord returns the record of a token.
func (t *Tokens) newRecord(secret string, req Request) *record.JoinToken {
	now := t.db.Now()
	made := &record.JoinToken{
		Digest: digest(secret), Created: now, CreatedBy: req.By, Description: req.Description, Once: req.Once,
		Permanent: req.Permanent, Epoch: t.db.Store.Epoch(),
	}
	if req.Lifetime > 0 {
		made.Expires = now.Add(req.Lifetime)
	}
	return made
}

// deletePermanent returns the changes that delete every permanent token. An update from a release with another
// form of the tokens may leave two of them.
func (t *Tokens) deletePermanent() []store.Change {
	changes := []store.Change{store.Delete(t.db.Tables.Settings, settingOlderForm, store.Any)}
	for id, one := range t.db.Tables.JoinTokens.All() {
		if one.Permanent && len(changes) < maxReplaced {
			changes = append(changes, store.Delete(t.db.Tables.JoinTokens, id, store.Any))
		}
	}
	return changes
}

// maxReplaced bounds the permanent tokens that one transaction replaces.
const maxReplaced = 100

// List returns the tokens without their secrets, the oldest first.
func (t *Tokens) List() []api.JoinToken {
	list := []api.JoinToken{}
	for id, one := range t.db.Tables.JoinTokens.All() {
		list = append(list, view(id, one))
	}
	slices.SortFunc(list, func(a, b api.JoinToken) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// Revoke deletes a token. Nodes that have joined with it stay.
func (t *Tokens) Revoke(ctx context.Context, id string) error {
	_, rev, err := record.Lookup(ctx, t.db.Tables.JoinTokens, id)
	if err != nil {
		return err
	}
	return t.db.Store.Commit(ctx, store.Delete(t.db.Tables.JoinTokens, id, store.IfRev(rev)))
}

// Prune deletes expired tokens.
func (t *Tokens) Prune(ctx context.Context, w *record.Term, now time.Time) error {
	for id, one := range t.db.Tables.JoinTokens.All() {
		if one.Expires.IsZero() || now.Before(one.Expires.Add(keepExpired)) {
			continue
		}
		if err := w.Commit(ctx, store.Delete(t.db.Tables.JoinTokens, id, store.Any)); err != nil {
			return err
		}
	}
	return nil
}

// keepExpired is how long an expired token is listed, and named as the reason of a refusal.
const keepExpired = 24 * time.Hour

// Admit returns the changes with which a transaction uses a token: none for a token that works more than once.
// It returns farm.CodeUnauthenticated for a token that is not valid.
func (t *Tokens) Admit(secret string) ([]store.Change, error) {
	id, one, rev := t.find(secret)
	switch {
	case one == nil && t.isOlderForm(secret):
		return nil, nil
	case one == nil:
		return nil, farm.Errorf(farm.CodeUnauthenticated, "wrong join token")
	case !one.Expires.IsZero() && !t.db.Now().Before(one.Expires):
		return nil, farm.Errorf(farm.CodeUnauthenticated, "the join token expired at %s",
			one.Expires.Format(time.RFC3339))
	case !one.Once:
		return nil, nil
	case one.Epoch != t.db.Store.Epoch():
		return nil, farm.Errorf(farm.CodeUnauthenticated,
			"the join token works once, and may have been used before the records were restored from a backup")
	}
	return []store.Change{store.Delete(t.db.Tables.JoinTokens, id, store.IfRev(rev))}, nil
}

// find returns the token with a secret; nil when there is none. It compares with every token in constant time.
func (t *Tokens) find(secret string) (id string, found *record.JoinToken, rev int64) {
	want := []byte(digest(secret))
	for one, token := range t.db.Tables.JoinTokens.All() {
		if subtle.ConstantTimeCompare(want, []byte(token.Digest)) == 1 {
			id = one
		}
	}
	if id == "" {
		return "", nil, 0
	}
	found, rev, ok := t.db.Tables.JoinTokens.Get(id)
	if !ok {
		return "", nil, 0
	}
	return id, found, rev
}

// view returns a token without its secret.
func view(id string, t *record.JoinToken) api.JoinToken {
	return api.JoinToken{
		ID: id, Description: t.Description, Created: t.Created, CreatedBy: t.CreatedBy, Expires: t.Expires,
		Once: t.Once, Permanent: t.Permanent,
	}
}

// digest returns the SHA-256 of a secret in hex.
func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// randomHex returns random bytes in hex.
func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
