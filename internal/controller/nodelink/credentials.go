package nodelink

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// noCredential is used as the digest of a node that does not exist.
var noCredential = strings.Repeat("0", 2*sha256.Size)

// sameDigest reports whether a secret has a digest, in constant time.
func sameDigest(secret, want string) bool {
	sum := sha256.Sum256([]byte(secret))
	var have, kept [2 * sha256.Size]byte
	hex.Encode(have[:], sum[:])
	copy(kept[:], want)
	return subtle.ConstantTimeCompare(have[:], kept[:]) == 1 && len(want) == len(kept)
}

// AuthenticateRequest checks a message of a node that does not contain its credential. check reports whether the
// message was made with the credential that has a digest. The errors are those of Authenticate.
func (l *Link) AuthenticateRequest(id string, check func(digest string) bool) error {
	node, _, ok := l.db.Tables.Nodes.Get(id)
	want := noCredential
	if ok {
		want = node.Credential
	}
	if !check(want) || !ok {
		return farm.Errorf(farm.CodeUnauthenticated, "unknown node ID or wrong credential")
	}
	return nil
}

// ErrRemoved means that the credential is right and its node was removed.
var ErrRemoved = farm.Errorf(farm.CodeUnauthenticated, "the node was removed")

// Authenticate returns the record of a node that presents its credential; farm.CodeUnauthenticated for
// any other, which is ErrRemoved for a node that an operator removed recently. The caller must not
// change the record.
func (l *Link) Authenticate(id, credential string) (*farm.Node, error) {
	node, _, ok := l.db.Tables.Nodes.Get(id)
	want := noCredential
	if ok {
		want = node.Credential
	} else if removed, _, was := l.db.Tables.Removed.Get(id); was {
		want = removed.Credential
	}
	switch {
	case !sameDigest(credential, want):
		return nil, farm.Errorf(farm.CodeUnauthenticated, "unknown node ID or wrong credential")
	case !ok:
		return nil, ErrRemoved
	}
	return node, nil
}
