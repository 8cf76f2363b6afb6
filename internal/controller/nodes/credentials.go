package nodes

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const settingJoinToken = "join-token"

// JoinToken returns the secret that a node needs to join.
func (n *Nodes) JoinToken() string { return n.joinToken }

// ensureJoinToken reads the join token, or creates one at the very first start.
func (n *Nodes) ensureJoinToken(ctx context.Context) (string, error) {
	settings := n.db.Tables.Settings
	if n.opts.JoinToken != "" {
		return n.opts.JoinToken, nil
	}
	if s, _, ok := settings.Get(settingJoinToken); ok {
		return s.Value, nil
	}
	token := newSecret()
	err := n.db.Store.Commit(ctx, store.Put(settings, settingJoinToken, &record.Setting{Value: token}, store.IfAbsent))
	if errors.Is(err, store.ErrConflict) { // another replica was first
		s, _, err := settings.GetLinearizable(ctx, settingJoinToken)
		if err == nil && s != nil {
			return s.Value, nil
		}
		return "", err
	}
	return token, err
}

func (n *Nodes) isJoinToken(secret string) bool {
	return subtle.ConstantTimeCompare([]byte(secret), []byte(n.joinToken)) == 1
}

// newSecret returns 256 random bits as hex.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// VerifyCredential refuses a credential that is not a node's. Credentials of removed nodes pass: their
// agents have to learn of the removal. It compares with every node, and is called before more
// expensive work.
func (n *Nodes) VerifyCredential(credential string) error {
	want := digest(credential)
	for _, node := range n.db.Tables.Nodes.All() {
		if node.Credential == want {
			return nil
		}
	}
	for _, node := range n.db.Tables.Removed.All() {
		if node.Credential == want {
			return nil
		}
	}
	return farm.Errorf(farm.CodeUnauthenticated, "the credential does not belong to a node")
}

// AuthorizeDownload authorizes a caller to load agent packages: it must have the join token, or be a
// node with its id and its credential. Otherwise it returns farm.CodeUnauthenticated.
func (n *Nodes) AuthorizeDownload(user, secret string) error {
	if n.isJoinToken(secret) {
		return nil
	}
	_, err := n.opts.Link.Authenticate(user, secret)
	return err
}
