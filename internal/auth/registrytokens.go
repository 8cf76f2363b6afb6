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

// RegistryTokenTTL is the lifetime of a registry token: a node whose order has ended can use it that long.
const RegistryTokenTTL = 5 * time.Minute

// maxScope bounds the encoded scope of a registry token, in bytes: a registry of the previous release
// accepts no larger one.
const maxScope = 2600

const (
	registryTokenPurpose Purpose = "pass"
	// registryTokenPrefix begins every registry token: its last character is not in base64, so that no session
	// and no JWT begins like this.
	registryTokenPrefix = "node~"
)

// RegistryTokens creates and verifies the credentials of nodes for a registry: signed values which the
// controller makes for its nodes and the registry verifies, and which are stored nowhere. They are
// for Bearer headers.
type RegistryTokens struct {
	signer func() *Signer
	keys   *APIKeys
}

// NewRegistryTokens returns RegistryTokens. keys are the API keys that nodes have joined with; nil: there are
// none.
func NewRegistryTokens(signer *Signer, keys *APIKeys) *RegistryTokens {
	return &RegistryTokens{func() *Signer { return signer }, keys}
}

// NewDerivedRegistryTokens returns RegistryTokens that are signed with a key derived from the root token,
// for a controller and a registry that share nothing else. The first token takes a good part of a
// second.
func NewDerivedRegistryTokens(root Secret, keys *APIKeys) *RegistryTokens {
	return &RegistryTokens{sync.OnceValue(func() *Signer { return derivedSigner(root) }), keys}
}

// registryTokenClaims is the content of a registry token.
type registryTokenClaims struct {
	NodeID string `json:"n"`
	KeyID  string `json:"k,omitempty"` // ID of the API key that the node has joined with
	// Scope is what it permits; nil, as controllers of the previous release make them: nothing. Agents that
	// have such a token request another one when they receive status 401.
	Scope *NodeScope `json:"c,omitempty"`
}

// Issue creates a token for a node and returns its lifetime. keyID is the ID of the API key with
// which the node has joined, or "". The least urgent part of a scope that is too large is left out.
func (p *RegistryTokens) Issue(node, keyID string, scope NodeScope) (value string, life time.Duration) {
	fitted := truncateScope(scope)
	raw := compactJSON(registryTokenClaims{node, keyID, &fitted})
	return registryTokenPrefix + p.signer().Sign(registryTokenPurpose, raw), RegistryTokenTTL
}

// compactJSON encodes texts as JSON, without the escapes for HTML.
func compactJSON(v any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // texts: never fails
	return bytes.TrimSpace(out.Bytes())
}

// truncateScope leaves out what makes a scope too large: first logs, then pulls, then saves, each from its end.
// The scope of a single purpose always fits.
func truncateScope(s NodeScope) NodeScope {
	over := len(compactJSON(s)) - maxScope
	shed := func(n int, size func(i int) int) (keep int) {
		for keep = n; keep > 0 && over > 0; keep-- {
			over -= size(keep-1) + 1 // the comma
		}
		return keep
	}
	s.LogInstances = s.LogInstances[:shed(len(s.LogInstances), func(i int) int { return len(s.LogInstances[i]) + 2 })]
	s.PullTemplates = s.PullTemplates[:shed(len(s.PullTemplates),
		func(i int) int { return len(s.PullTemplates[i]) + 2 })]
	s.Saves = s.Saves[:shed(len(s.Saves), func(i int) int { return len(compactJSON(s.Saves[i])) })]
	return s
}

var (
	errRegistryTokenForm    = deniedError("the registry token is malformed")
	errRegistryTokenForeign = deniedError("the registry token is for another registry")
	errRegistryTokenExpired = deniedError("the registry token has expired")
)

// Verify verifies a registry token. The groups are the current ones of the API key that the node has
// joined with: none, when that has expired.
func (p *RegistryTokens) Verify(value string) (Identity, error) {
	text, ok := strings.CutPrefix(value, registryTokenPrefix)
	if !ok {
		return Identity{}, errRegistryTokenForm
	}
	raw, err := p.signer().Verify(registryTokenPurpose, text, RegistryTokenTTL)
	switch {
	case errors.Is(err, ErrSignedTextExpired):
		return Identity{}, errRegistryTokenExpired
	case errors.Is(err, ErrSignedTextForm):
		return Identity{}, errRegistryTokenForm
	case err != nil:
		return Identity{}, errRegistryTokenForeign
	}
	var is registryTokenClaims
	if json.Unmarshal(raw, &is) != nil || !isValidName(is.NodeID) {
		return Identity{}, errRegistryTokenForm
	}
	who := Identity{Name: is.NodeID, KeyID: is.KeyID, Method: ByNode, Scope: NodeScope{Orders: true}}
	if is.Scope != nil {
		who.Scope = *is.Scope
	}
	if p.keys != nil && is.KeyID != "" {
		if key, live := p.keys.GetUnexpired(is.KeyID); live {
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
