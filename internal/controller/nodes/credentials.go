package nodes

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"github.com/buildyard/buildyard/internal/farm"
)

// JoinToken returns the permanent join token; "" when this replica does not have it.
func (n *Nodes) JoinToken() string { return n.opts.Tokens.Permanent() }

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
	if _, err := n.opts.Tokens.Admit(secret); err == nil { // a token that works once stays valid
		return nil
	}
	_, err := n.opts.Link.Authenticate(user, secret)
	return err
}
