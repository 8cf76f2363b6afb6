package oidc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/buildyard/buildyard/internal/farm"
)

// Limits of a token.
const (
	maxToken     = 16 << 10 // bytes
	maxHeader    = 4 << 10  // bytes, decoded
	maxKeyID     = 256
	maxTriedKeys = 16 // keys of the provider, for a token that names none
)

// algorithms are those by which tokens may be signed. "none" and those of shared secrets (HS…)
// are not among them, and never may be.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// types are the accepted token types: none, an ID token, or an access token (RFC 9068). Tokens for
// other purposes have other types.
var types = []string{"", "jwt", "at+jwt", "application/at+jwt"}

// header is the part of a token that is checked first.
type header struct {
	Algorithm jose.SignatureAlgorithm `json:"alg"`
	KeyID     string                  `json:"kid"`
	Type      string                  `json:"typ"`
	Critical  json.RawMessage         `json:"crit"`
}

var errForm = errors.New("the token is not a JWT")

// parseHeader parses the header of a token. It trusts nothing of it: it rejects early, at low cost,
// what would not be accepted in any case.
func parseHeader(token string) (h header, err error) {
	if len(token) > maxToken {
		return h, fmt.Errorf("the token is longer than %d bytes", maxToken)
	}
	first, _, ok := strings.Cut(token, ".")
	if !ok || strings.Count(token, ".") != 2 || base64.RawURLEncoding.DecodedLen(len(first)) > maxHeader {
		return h, errForm
	}
	raw, err := base64.RawURLEncoding.DecodeString(first)
	if err != nil || json.Unmarshal(raw, &h) != nil {
		return header{}, errForm
	}
	switch {
	case !slices.Contains(algorithms, h.Algorithm):
		return h, fmt.Errorf("the token has the unsupported signature algorithm %.20q", h.Algorithm)
	case !slices.Contains(types, strings.ToLower(h.Type)):
		return h, fmt.Errorf("the token has the type %.40q, which is not accepted", h.Type)
	case h.Critical != nil:
		return h, errors.New("the token requires unsupported extensions (crit)")
	case len(h.KeyID) > maxKeyID:
		return h, fmt.Errorf("the key ID of the token is longer than %d bytes", maxKeyID)
	}
	return h, nil
}

// signatureVerifier verifies the signature of one token. It keeps the provider's absence, which
// package oidc turns into text.
type signatureVerifier struct {
	provider *Provider
	header   header
	keysErr  error
}

var _ oidc.KeySet = (*signatureVerifier)(nil)

var errSignature = errors.New("the signature of the token is not by a key of the identity provider")

// VerifySignature implements oidc.KeySet. An unknown key may be a new one, and one that does not
// match a replaced one: the keys are fetched again, as often as cachedFetch allows.
func (s *signatureVerifier) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, errForm
	}
	never := func(keySet) bool { return false }
	for _, good := range []func(keySet) bool{s.header.matchesAny, never} {
		set, err := s.provider.keys.get(ctx, good)
		if err != nil {
			s.keysErr = err
			return nil, err
		}
		for _, k := range s.header.candidates(set) {
			if payload, err := jws.Verify(k.Key); err == nil {
				return payload, nil
			}
		}
	}
	return nil, errSignature
}

func (h header) matchesAny(set keySet) bool { return len(h.candidates(set)) > 0 }

// candidates are the keys that may have signed a token.
func (h header) candidates(set keySet) (out keySet) {
	for _, k := range set {
		if (h.KeyID == "" || h.KeyID == k.KeyID) && (k.Algorithm == "" || k.Algorithm == string(h.Algorithm)) &&
			len(out) < maxTriedKeys {
			out = append(out, k)
		}
	}
	return out
}

// verifyToken verifies a token: signature, issuer and dates, and with a client its audience.
func (p *Provider) verifyToken(ctx context.Context, token, client string) (*oidc.IDToken, error) {
	h, err := parseHeader(token)
	if err != nil {
		return nil, err
	}
	m, err := p.metadata.get(ctx, acceptAny)
	if err != nil {
		return nil, err
	}
	s := &signatureVerifier{provider: p, header: h}
	config := &oidc.Config{
		ClientID: client, SkipClientIDCheck: client == "",
		SupportedSigningAlgs: []string{string(h.Algorithm)}, Now: p.opts.Now,
	}
	t, err := oidc.NewVerifier(m.Issuer, s, config).Verify(ctx, token)
	switch {
	case s.keysErr != nil:
		return nil, s.keysErr
	case err != nil:
		return nil, fmt.Errorf("invalid token: %w", err)
	}
	return t, nil
}

// Verify returns the user of a Bearer value that is a JWT of the provider, as required by
// auth.Authenticator. The error is farm.CodeUnavailable while the provider cannot be reached, else
// farm.CodeUnauthenticated, with a cause for the log that contains nothing of the token but its
// claims' names.
func (p *Provider) Verify(ctx context.Context, token string) (name string, groups []string, err error) {
	who, err := p.identifyBearer(ctx, token)
	if err != nil && farm.CodeOf(err) != farm.CodeUnavailable {
		err = &farm.Error{Code: farm.CodeUnauthenticated, Message: "Authentication Required", Err: err}
	}
	return who.name, who.groups, err
}

var (
	errAudience = errors.New("the token was not issued for this client (aud, azp)")
	errLogout   = errors.New("the token is a logout token, not a credential")
)

func (p *Provider) identifyBearer(ctx context.Context, token string) (user, error) {
	t, err := p.verifyToken(ctx, token, "")
	if err != nil {
		return user{}, err
	}
	c, err := claimsOf(t)
	if err != nil {
		return user{}, err
	}
	if azp, _ := c.stringClaim("azp"); !slices.Contains(t.Audience, p.opts.ClientID) && azp != p.opts.ClientID {
		return user{}, errAudience
	}
	if _, ok := c["events"]; ok {
		return user{}, errLogout
	}
	if _, ok := c[p.opts.UsernameClaim]; !ok {
		c[p.opts.UsernameClaim] = c["sub"] // a program has no user name
	}
	return p.userOf(c)
}
