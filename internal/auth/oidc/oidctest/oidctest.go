// Package oidctest is an identity provider for tests: OpenID Connect with codes, PKCE and client
// credentials, on loopback.
//
// The protocol is implemented by fosite, not by this repository, so that the tests agree with other
// implementations. There is no login page; LogsIn sets the user.
//
// Invariant: every provider has separate users and clients; keys are shared by the providers of a
// test program.
package oidctest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	jose3 "github.com/go-jose/go-jose/v3"
	"github.com/go-jose/go-jose/v4"
	"github.com/ory/fosite"
	"github.com/ory/fosite/compose"
	"github.com/ory/fosite/handler/openid"
	"github.com/ory/fosite/storage"
	"github.com/ory/fosite/token/jwt"
)

// Provider is an identity provider that runs until its test ends.
type Provider struct {
	URL string // the issuer

	config *fosite.Config
	store  *storage.MemoryStore
	oauth  fosite.OAuth2Provider

	mu      sync.Mutex // guards the fields below
	key     *jose3.JSONWebKey
	number  int // of the key
	subject string
	claims  map[string]any // in ID tokens and access tokens
	profile map[string]any // at the userinfo endpoint
	away    bool
	asked   map[string]int // path -> requests
	instead map[string]http.HandlerFunc
}

// New starts a provider without clients and users.
func New(t testing.TB) *Provider {
	t.Helper()
	p := &Provider{asked: map[string]int{}, instead: map[string]http.HandlerFunc{}, store: storage.NewMemoryStore()}
	mux := http.NewServeMux()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.asked[r.URL.Path]++
		away, instead := p.away, p.instead[r.URL.Path]
		p.mu.Unlock()
		switch {
		case away:
			http.Error(w, "away", http.StatusBadGateway)
		case instead != nil:
			instead(w, r)
		default:
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	p.URL = server.URL
	mux.HandleFunc("GET /.well-known/openid-configuration", p.describe)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("GET /auth", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	mux.HandleFunc("GET /userinfo", p.userinfo)
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	p.config = &fosite.Config{
		GlobalSecret: secret, EnforcePKCE: true, HashCost: 4,
		AccessTokenIssuer: p.URL, IDTokenIssuer: p.URL, ScopeStrategy: fosite.ExactScopeStrategy,
	}
	p.Rotate(t)
	get := func(context.Context) (any, error) { return p.signer(), nil }
	p.oauth = compose.Compose(p.config, p.store, &compose.CommonStrategy{
		CoreStrategy: compose.NewOAuth2JWTStrategy(get, compose.NewOAuth2HMACStrategy(p.config),
			p.config),
		OpenIDConnectTokenStrategy: compose.NewOpenIDConnectStrategy(get, p.config),
		Signer:                     &jwt.DefaultSigner{GetPrivateKey: get},
	}, compose.OAuth2AuthorizeExplicitFactory, compose.OAuth2ClientCredentialsGrantFactory,
		compose.OpenIDConnectExplicitFactory, compose.OAuth2PKCEFactory, compose.OAuth2StatelessJWTIntrospectionFactory)
	return p
}

// Client registers a client. Without a secret it is a public one.
func (p *Provider) Client(t testing.TB, id, secret, redirect string) {
	t.Helper()
	hash, err := (&fosite.BCrypt{Config: p.config}).Hash(t.Context(), []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	p.store.Clients[id] = &fosite.DefaultOpenIDConnectClient{
		DefaultClient: &fosite.DefaultClient{
			ID: id, Secret: hash, RedirectURIs: []string{redirect}, Public: secret == "",
			GrantTypes: []string{"authorization_code", "client_credentials"}, ResponseTypes: []string{"code"},
			Scopes: []string{"openid", "profile", "email"}, Audience: []string{id},
		},
		TokenEndpointAuthMethod: map[bool]string{true: "none", false: "client_secret_basic"}[secret == ""],
	}
}

// LogsIn sets who logs in from now on; "" is a user who refuses. The claims are in the tokens.
func (p *Provider) LogsIn(subject string, claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subject, p.claims = subject, claims
}

// Profile sets the response of the userinfo endpoint about a user.
func (p *Provider) Profile(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.profile = claims
}

// Away makes the provider answer nothing but errors, or ends that.
func (p *Provider) Away(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

// Instead answers a path otherwise than the provider would; nil ends that.
func (p *Provider) Instead(path string, h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instead[path] = h
}

// Asked returns the number of requests for a path.
func (p *Provider) Asked(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[path]
}

// Rotate replaces the key that tokens are signed by.
func (p *Provider) Rotate(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	key, err := keyOf(p.number)
	if err != nil {
		t.Fatal(err)
	}
	p.number++
	p.key = &jose3.JSONWebKey{Key: key, KeyID: fmt.Sprintf("key-%d", p.number), Algorithm: "RS256", Use: "sig"}
}

// made caches keys of former providers: making one takes longer than most tests.
var made struct {
	sync.Mutex
	keys []*rsa.PrivateKey
}

func keyOf(number int) (*rsa.PrivateKey, error) {
	made.Lock()
	defer made.Unlock()
	for len(made.keys) <= number {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return nil, err
		}
		made.keys = append(made.keys, key)
	}
	return made.keys[number], nil
}

func (p *Provider) signer() *jose3.JSONWebKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.key
}

// Sign signs any claims with the current key. Issuer, subject and dates are added when the claims
// do not have them; nil removes one.
func (p *Provider) Sign(t testing.TB, claims map[string]any) string {
	t.Helper()
	all := map[string]any{
		"iss": p.URL, "sub": "someone", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	for name, value := range claims {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	k := p.signer()
	return SignWith(t, jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: k.Key, KeyID: k.KeyID}}, "JWT",
		all)
}

// SignWith signs claims by a key that need not be the provider's.
func SignWith(t testing.TB, key jose.SigningKey, typ string, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType(jose.ContentType(typ)))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(raw)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// session is the content of a code or token.
type session struct {
	*openid.DefaultSession
	Access *jwt.JWTClaims
	Header *jwt.Headers
}

// GetJWTClaims returns the claims of an access token.
func (s *session) GetJWTClaims() jwt.JWTClaimsContainer { return s.Access }

// GetJWTHeader returns the header of an access token.
func (s *session) GetJWTHeader() *jwt.Headers { return s.Header }

// Clone copies the session.
func (s *session) Clone() fosite.Session {
	access, whole := *s.Access, *s
	whole.DefaultSession, whole.Access = s.DefaultSession.Clone().(*openid.DefaultSession), &access
	return &whole
}

func (p *Provider) session(subject string) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &session{
		DefaultSession: &openid.DefaultSession{
			Subject: subject, Headers: &jwt.Headers{},
			Claims: &jwt.IDTokenClaims{
				Subject: subject, Extra: p.claims, RequestedAt: time.Now(),
				AuthTime: time.Now(),
			},
		},
		Access: &jwt.JWTClaims{Subject: subject, Extra: p.claims},
		Header: &jwt.Headers{},
	}
}
