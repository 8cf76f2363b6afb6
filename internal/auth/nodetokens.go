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

// PassTTL is the lifetime of a node token: a node whose order has ended can use it that long.
const PassTTL = 5 * time.Minute

// maxScope bounds the encoded scope of a node token, in bytes: a registry of the previous release
// accepts no larger one.
const maxScope = 2600

const (
	forPasses Purpose = "pass"
	// passPrefix begins every node token: its last character is not in base64, so that no session
	// and no JWT begins like this.
	passPrefix = "node~"
)

// NodeTokens creates and verifies the credentials of nodes for a registry: signed values which the
// controller makes for its nodes and the registry verifies, and which are stored nowhere. They are
// for Bearer headers.
type NodeTokens struct {
	signer func() *Signer
	keys   *Keys
}

// NewNodeTokens returns NodeTokens. keys are the API keys that nodes have joined with; nil: there are
// none.
func NewNodeTokens(signer *Signer, keys *Keys) *NodeTokens {
	return &NodeTokens{func() *Signer { return signer }, keys}
}

// NewDerivedNodeTokens returns NodeTokens that are signed with a key derived from the root token,
// for a controller and a registry that share nothing else. The first token takes a good part of a
// second.
func NewDerivedNodeTokens(root Secret, keys *Keys) *NodeTokens {
	return &NodeTokens{sync.OnceValue(func() *Signer { return derivedSigner(root) }), keys}
}

// nodeToken is the content of a node token.
type nodeToken struct {
	Node string `json:"n"`
	Key  string `json:"k,omitempty"` // ID of the API key that the node has joined with
	// Scope is what it permits; nil, as controllers of the previous release make them: nothing. Agents that
	// have such a token request another one when they receive status 401.
	Scope *NodeScope `json:"c,omitempty"`
}

// Open creates a token for a node and returns its lifetime. keyID is the ID of the API key with
// which the node has joined, or "". The least urgent part of a scope that is too large is left out.
func (p *NodeTokens) Open(node, keyID string, scope NodeScope) (value string, life time.Duration) {
	fitted := fitScope(scope)
	raw := compact(nodeToken{node, keyID, &fitted})
	return passPrefix + p.signer().Seal(forPasses, raw), PassTTL
}

// compact encodes texts as JSON, without the escapes for HTML.
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
	errPassForm    = denied("the node token is malformed")
	errPassForeign = denied("the node token is for another registry")
	errPassExpired = denied("the node token has expired")
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
	if json.Unmarshal(raw, &is) != nil || !isValidName(is.Node) {
		return Identity{}, errPassForm
	}
	who := Identity{Name: is.Node, KeyID: is.Key, Method: ByNode, Scope: NodeScope{Orders: true}}
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

// Parameters of the key that derivedSigner derives from a root token: its purpose, and the work
// that each guess of the token takes.
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
