package auth

import (
	"bytes"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// PassTTL is how long a node token is good: a node whose order has ended can use it that long.
const PassTTL = 5 * time.Minute

// maxScope bounds what a node token says of its scope, in bytes: a registry of the release before takes no
// larger one.
const maxScope = 2600

const (
	forPasses Purpose = "pass"
	// passPrefix begins every pass: no base64 has its last character, so that no session and
	// no JWT begins like this.
	passPrefix = "node~"
)

// NodeTokens are what nodes show to a registry: signed values which the controller makes for its
// nodes and the registry verifies, and which are stored nowhere. They are for Bearer headers.
type NodeTokens struct {
	signer func() *Signer
	keys   *Keys
}

// NewPasses makes passes. keys are those that nodes have joined with; nil: there are none.
func NewPasses(signer *Signer, keys *Keys) *NodeTokens {
	return &NodeTokens{func() *Signer { return signer }, keys}
}

// NewDerivedNodeTokens makes passes that are signed with a key made of the root token, for a
// controller and a registry that share nothing else. The first one takes a good part of a
// second.
func NewDerivedNodeTokens(root Secret, keys *Keys) *NodeTokens {
	return &NodeTokens{sync.OnceValue(func() *Signer { return derivedSigner(root) }), keys}
}

// nodeToken is what a pass says.
type nodeToken struct {
	Node string `json:"n"`
	Key  string `json:"k,omitempty"` // id of the user key that the node has joined with
	// Scope is what it is good for; nil, as controllers of the release before make them: nothing.
	Scope *NodeScope `json:"c,omitempty"`
}

// Open makes a pass for a node and says how long it is good. keyID is that of the user key
// with which the node has joined, or "". Of a scope that is too large the least urgent part is left out.
func (p *NodeTokens) Open(node, keyID string, scope NodeScope) (value string, life time.Duration) {
	fitted := fitScope(scope)
	raw := compact(nodeToken{node, keyID, &fitted})
	return passPrefix + p.signer().Seal(forPasses, raw), PassTTL
}

// compact encodes texts as JSON, without the escapes that are for pages.
func compact(v any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // texts: never fails
	return bytes.TrimSpace(out.Bytes())
}

// fitScope leaves out what makes a scope too large: first logs, then pulls, then saves, each from its end.
// The scope of a single purpose always fits.
func fitScope(s NodeScope) NodeScope {
	over := len(compact(s)) - maxScope
	shed := func(n int, size func(i int) int) (keep int) {
		for keep = n; keep > 0 && over > 0; keep-- {
			over -= size(keep-1) + 1 // the comma
		}
		return keep
	}
	s.Logs = s.Logs[:shed(len(s.Logs), func(i int) int { return len(s.Logs[i]) + 2 })]
	s.Pull = s.Pull[:shed(len(s.Pull), func(i int) int { return len(s.Pull[i]) + 2 })]
	s.Save = s.Save[:shed(len(s.Save), func(i int) int { return len(compact(s.Save[i])) })]
	return s
}

var (
	errPassForm    = denied("the pass of a node is not one")
	errPassForeign = denied("the pass of a node was not made for this registry")
	errPassExpired = denied("the pass of a node has expired")
)

// Verify verifies a node token. The groups are the current ones of the API key that the node has
// joined with: none, when that has expired.
func (p *NodeTokens) Verify(value string) (Identity, error) {
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
	var is nodeToken
	if json.Unmarshal(raw, &is) != nil || !goodName(is.Node) {
		return Identity{}, errPassForm
	}
	who := Identity{Name: is.Node, KeyID: is.Key, Method: ByNode}
	if is.Scope != nil {
		who.Scope = *is.Scope
	}
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
	return NewSigner(KeyRing{[]*signingKey{{version: 1, secret: (*[32]byte)(secret)}}})
}
