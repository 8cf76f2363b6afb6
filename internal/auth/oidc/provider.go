package oidc

import (
	"cmp"
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"
)

const (
	discoveryPath    = "/.well-known/openid-configuration"
	maxResponseBytes = 1 << 20 // bytes of an answer of the provider
	maxKeys          = 100
	minRSABits       = 2048 // bits
)

// metadata is a provider's description of itself (OpenID Connect Discovery, section 3).
type metadata struct {
	Issuer           string   `json:"issuer"`
	AuthorizationURL string   `json:"authorization_endpoint"`
	TokenURL         string   `json:"token_endpoint"`
	UserInfoURL      string   `json:"userinfo_endpoint"`
	JWKSURL          string   `json:"jwks_uri"`
	TokenAuthMethods []string `json:"token_endpoint_auth_methods_supported"`
}

// newHTTP makes the client of all calls to the provider: bounded in time and size, and never
// redirected from https to an insecure address.
func newHTTP(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: callTimeout / 2}).DialContext,
			TLSHandshakeTimeout:    callTimeout / 2,
			ForceAttemptHTTP2:      true,
			MaxConnsPerHost:        2 * maxLogins,
			MaxResponseHeaderBytes: 64 << 10,
			IdleConnTimeout:        time.Minute,
		}
	}
	return &http.Client{
		Transport: limitedTransport{transport}, Timeout: callTimeout,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if via[0].Method != http.MethodGet || len(via) > 3 {
				return errors.New("unexpected redirect by the identity provider")
			}
			_, err := checkAddress(r.URL.String())
			return err
		},
	}
}

// limitedTransport ends answers that are too long with an error.
type limitedTransport struct{ http.RoundTripper }

func (b limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxResponseBytes)
	}
	return resp, err
}

// getJSON calls the provider; token is "" for public documents.
func (p *Provider) getJSON(ctx context.Context, address, token string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", address, resp.StatusCode)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("invalid response of %s: %w", address, err)
	}
	return nil
}

// fetchMetadata requests the provider's description.
func (p *Provider) fetchMetadata(ctx context.Context) (metadata, error) {
	var m metadata
	if err := p.getJSON(ctx, strings.TrimSuffix(p.issuer, "/")+discoveryPath, "", &m); err != nil {
		return metadata{}, err
	}
	if strings.TrimSuffix(m.Issuer, "/") != strings.TrimSuffix(p.issuer, "/") {
		return metadata{}, fmt.Errorf("OIDC issuer mismatch: the discovery document has %.200q, configured is %q",
			m.Issuer, p.issuer)
	}
	for _, address := range []string{m.AuthorizationURL, m.TokenURL, m.JWKSURL, cmp.Or(m.UserInfoURL, m.JWKSURL)} {
		if _, err := checkAddress(address); err != nil {
			return metadata{}, fmt.Errorf("the discovery document of the identity provider has the URL %.200q: %w",
				address, err)
		}
	}
	return m, nil
}

// oauthEndpoint is where codes are exchanged. How the client authenticates follows from the description,
// so that a code is never sent twice to find out.
func (m metadata) oauthEndpoint() oauth2.Endpoint {
	style := oauth2.AuthStyleInHeader
	if len(m.TokenAuthMethods) > 0 && !slices.Contains(m.TokenAuthMethods, "client_secret_basic") {
		style = oauth2.AuthStyleInParams
	}
	return oauth2.Endpoint{AuthURL: m.AuthorizationURL, TokenURL: m.TokenURL, AuthStyle: style}
}

// keySet is the keys by which the provider's signatures are verified.
type keySet []jose.JSONWebKey

var errNoKeys = fmt.Errorf(
	"the identity provider has no usable signature key: want an asymmetric one, with RSA of at least %d bits",
	minRSABits)

func (p *Provider) fetchKeys(ctx context.Context) (keySet, error) {
	m, err := p.metadata.get(ctx, acceptAny)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := p.getJSON(ctx, m.JWKSURL, "", &answer); err != nil {
		return nil, err
	}
	return parseKeys(answer.Keys)
}

// parseKeys returns the usable keys and ignores the others: a set may have keys for other purposes
// and of unknown kinds.
func parseKeys(raw []json.RawMessage) (keySet, error) {
	if len(raw) > maxKeys {
		return nil, fmt.Errorf("the identity provider has more than %d keys", maxKeys)
	}
	var set keySet
	for _, text := range raw {
		var k jose.JSONWebKey
		if err := json.Unmarshal(text, &k); err == nil && isUsableKey(k) {
			set = append(set, k)
		}
	}
	if len(set) == 0 {
		return nil, errNoKeys
	}
	return set, nil
}

func isUsableKey(k jose.JSONWebKey) bool {
	if r, ok := k.Key.(*rsa.PublicKey); ok && r.N.BitLen() < minRSABits {
		return false
	}
	return k.Valid() && k.IsPublic() && (k.Use == "" || k.Use == "sig")
}

// Prefetch fetches what is needed to verify the provider's tokens, so that the first caller need not
// wait. The result is logged; a service starts without it.
func (p *Provider) Prefetch(ctx context.Context) error {
	_, err := p.keys.get(ctx, acceptAny)
	return err
}

// Alarm returns the problem that an operator has to fix; "" for none.
func (p *Provider) Alarm() string { return cmp.Or(p.metadata.alarm(), p.keys.alarm()) }
