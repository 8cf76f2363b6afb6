package auth

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// PassTTL is how long the pass of a node is good.
const PassTTL = 10 * time.Minute

const (
	forPasses Purpose = "pass"
	// passPrefix begins every pass: no base64 has its last character, so that no session and
	// no JWT begins like this.
	passPrefix = "node~"
)

// Passes are what nodes show to a registry: signed values which the controller makes for its
// nodes and the registry verifies, and which are stored nowhere. They are for Bearer headers.
type Passes struct {
	signer func() *Signer
	keys   *Keys
}

// NewPasses makes passes. keys are those that nodes have joined with; nil: there are none.
func NewPasses(signer *Signer, keys *Keys) *Passes {
	return &Passes{func() *Signer { return signer }, keys}
}

// DerivedPasses makes passes that are signed with a key made of the root token, for a
// controller and a registry that share nothing else. The first one takes a good part of a
// second.
func DerivedPasses(root Secret, keys *Keys) *Passes {
	return &Passes{sync.OnceValue(func() *Signer { return derivedSigner(root) }), keys}
}

// pass is what a pass says.
type pass struct {
	Node string `json:"n"`
	Key  string `json:"k,omitempty"` // id of the user key that the node has joined with
}

// Open makes a pass for a node and says how long it is good. keyID is that of the user key
// with which the node has joined, or "".
func (p *Passes) Open(node, keyID string) (value string, life time.Duration) {
	raw, _ := json.Marshal(pass{node, keyID}) // two texts: never fails
	return passPrefix + p.signer().Seal(forPasses, raw), PassTTL
}

var (
	errPassForm    = denied("the pass of a node is not one")
	errPassForeign = denied("the pass of a node was not made for this registry")
	errPassExpired = denied("the pass of a node has expired")
)

// Verify judges a pass. The groups are those that the key of the node has now: none, when it
// has ended.
func (p *Passes) Verify(value string) (Identity, error) {
	text, ok := strings.CutPrefix(value, passPrefix)
	if !ok {
		return Identity{}, errPassForm
	}
	raw, err := p.signer().Unseal(forPasses, text, PassTTL)
	switch {
	case errors.Is(err, ErrSealExpired):
		return Identity{}, errPassExpired
	case errors.Is(err, ErrSealForm):
		return Identity{}, errPassForm
	case err != nil:
		return Identity{}, errPassForeign
	}
	var is pass
	if json.Unmarshal(raw, &is) != nil || !goodName(is.Node) {
		return Identity{}, errPassForm
	}
	who := Identity{Name: is.Node, KeyID: is.Key, Method: ByNode}
	if p.keys != nil && is.Key != "" {
		if key, live := p.keys.Live(is.Key); live {
			who.Groups = key.Groups
		}
	}
	return who, nil
}

// Of the key that derivedSigner makes of a root token: what it is for, and how much work each
// guess of the token takes.
const (
	derivedSalt   = "buildyard passes of nodes v1"
	derivedRounds = 600_000
)

func derivedSigner(root Secret) *Signer {
	secret, err := pbkdf2.Key(sha256.New, root.Reveal(), []byte(derivedSalt), derivedRounds, 32)
	if err != nil {
		panic(fmt.Sprintf("derive a key: %v", err)) // the length and the hash are above
	}
	return NewSigner(Ring{[]*signingKey{{version: 1, secret: (*[32]byte)(secret)}}})
}
