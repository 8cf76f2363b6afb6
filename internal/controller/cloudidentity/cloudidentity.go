// Package cloudidentity is the controller's side of the identity of a cloud: the key of the cloud, which is one of its
// records, what the cloud announces to its nodes, and proofs that a URL is one of this controller.
//
// It does not authenticate the node that asks for a proof.
//
// Invariant: the key is created once and is part of every backup, so that a restored cloud is the same cloud; a proof
// is made only for a URL that is announced or known as one of this controller.
package cloudidentity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// settingKey is the record with the private key of the cloud.
const settingKey = "cloud-key"

// Options configure an Identity. All fields are optional.
type Options struct {
	URLs []string // announced to nodes
	CA   string   // PEM of authorities that nodes are to trust; "": none
	// IsOwnURL reports whether a URL in canonical form reaches this controller without being announced. remote is
	// the address of the node that uses it, host and port. nil: only announced ones are known.
	IsOwnURL func(url, remote string) bool
}

// Identity is the identity of a cloud.
type Identity struct {
	key          cloudkey.Key
	opts         Options
	announcement api.CloudAnnouncement
}

// New returns the identity of the cloud in a database. It creates the key at the very first start.
func New(ctx context.Context, db record.DB, opts Options) (*Identity, error) {
	var err error
	if opts.URLs, err = cloudkey.CanonicalURLs(opts.URLs); err != nil {
		return nil, err
	}
	if err := cloudkey.CheckCA(opts.CA); err != nil {
		return nil, err
	}
	key, err := ensureKey(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("key of the cloud: %w", err)
	}
	return &Identity{key: key, opts: opts, announcement: api.CloudAnnouncement{
		Key: key.Public(), URLs: opts.URLs, CA: opts.CA,
		Signature: key.Announce(cloudkey.Announcement{URLs: opts.URLs, CA: opts.CA}),
	}}, nil
}

// ensureKey reads the key, or creates it at the very first start.
func ensureKey(ctx context.Context, db record.DB) (cloudkey.Key, error) {
	if s, _, ok := db.Tables.Settings.Get(settingKey); ok {
		return cloudkey.Parse(s.Value)
	}
	key, err := cloudkey.New()
	if err != nil {
		return key, err
	}
	err = db.Store.Commit(ctx,
		store.Put(db.Tables.Settings, settingKey, &record.Setting{Value: key.Encode()}, store.IfAbsent))
	if !errors.Is(err, store.ErrConflict) {
		return key, err
	}
	s, _, err := db.Tables.Settings.GetLinearizable(ctx, settingKey) // another replica was first
	if err != nil {
		return key, err
	}
	if s == nil {
		return key, errors.New("the record was removed")
	}
	return cloudkey.Parse(s.Value)
}

// SignPeerToken signs a token with which a node may read a version from another node.
func (i *Identity) SignPeerToken(p cloudkey.PeerPermit, until time.Time) string {
	return i.key.SignPeerToken(p, until)
}

// Announcement returns what the cloud announces to its nodes. The caller must not change it.
func (i *Identity) Announcement() *api.CloudAnnouncement { return &i.announcement }

// Prove signs that a URL is one of this controller. remote is the address of the node that uses it.
func (i *Identity) Prove(nonce, url, remote string) (api.CloudProof, error) {
	if !slices.Contains(i.opts.URLs, url) && (i.opts.IsOwnURL == nil || !i.opts.IsOwnURL(url, remote)) {
		return api.CloudProof{}, farm.Refused(
			"This controller does not know %s as one of its addresses; add it to SVC_ADVERTISE_URLS there", url)
	}
	return api.CloudProof{Signature: i.key.Prove(nonce, url)}, nil
}
