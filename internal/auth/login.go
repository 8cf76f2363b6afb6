package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// The lifetime of a browser's login and its cookies. The first cookie is for secure connections: no
// other host can set it.
const (
	LoginTTL          = 8 * time.Hour
	SecureLoginCookie = "__Host-buildyard_session"
	LoginCookie       = "buildyard_session"
)

const (
	loginPurpose Purpose = "login"
	maxLogin             = 3800      // bytes of its text: browsers keep 4096 with name and attributes
	maxCookies           = 16 * 1024 // bytes of all cookies of a request
)

// LoginCookies creates and verifies login cookies of browsers: signed identities, which every
// replica verifies and which are stored nowhere. A login of the root user becomes invalid with the
// root token, one of the identity provider's users with the provider, and one of an API key with the key.
type LoginCookies struct {
	signer      *Signer
	root        *RootToken
	providerURL string
	keys        *APIKeys
}

// NewLoginCookies returns LoginCookies. root is nil when no login with the root token is accepted, keys when none with
// an API key is; provider is the address of the identity provider, or "".
func NewLoginCookies(signer *Signer, root *RootToken, provider string, keys *APIKeys) *LoginCookies {
	return &LoginCookies{signer, root, provider, keys}
}

// loginClaims is the content of a cookie.
type loginClaims struct {
	Name   string   `json:"n,omitempty"`
	Groups []string `json:"g,omitempty"`
	KeyID  string   `json:"k,omitempty"` // of a login with an API key, which has no name and no groups
	// KeyGeneration distinguishes the key from a later one with its ID.
	KeyGeneration string `json:"v,omitempty"`
}

// The first letter of a cookie's text is the kind of login.
const (
	rootLogin     = 'r'
	providerLogin = 'p'
	keyLogin      = 'k'
)

// Issue returns the text of a cookie for a user who has logged in: with the root token, with a session of an API key,
// or at the identity provider.
func (l *LoginCookies) Issue(who Identity) (string, error) {
	kind, content := byte(providerLogin), loginClaims{Name: who.Name, Groups: who.Groups}
	switch {
	case who.Root:
		kind, content = rootLogin, loginClaims{}
	case who.Method == ByKey && l.keys != nil:
		key, ok := l.keys.GetUnexpired(who.KeyID)
		if !ok {
			return "", errSessionKey
		}
		kind, content = keyLogin, loginClaims{KeyID: key.ID, KeyGeneration: key.Generation}
	case who.Method != ByOIDC || l.providerURL == "":
		return "", errors.New("a login session of this kind is not supported")
	}
	if kind == providerLogin {
		if _, err := externalIdentity(who.Name, who.Groups, who.Method); err != nil {
			return "", err
		}
	}
	raw, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("encode login session: %w", err)
	}
	bound, ok := l.boundValues(kind)
	if !ok {
		return "", errors.New("a login session of this kind is not supported")
	}
	text := string(kind) + l.signer.Sign(loginPurpose, raw, bound...)
	if len(text) > maxLogin {
		return "",
			farm.Refused(
				"You are in %d groups, more than a browser can keep: ask for fewer groups in the claims that the "+
					"identity provider makes for this service", len(who.Groups))
	}
	return text, nil
}

// boundValues returns the values to which a kind of login is bound; ok is false for an unknown kind.
func (l *LoginCookies) boundValues(kind byte) (bound []string, ok bool) {
	switch {
	case kind == rootLogin && l.root != nil:
		return []string{string(ByRoot), l.root.token.Reveal()}, true
	case kind == providerLogin && l.providerURL != "":
		return []string{string(ByOIDC), l.providerURL}, true
	case kind == keyLogin && l.keys != nil:
		return []string{string(ByKey)}, true
	}
	return nil, false
}

var (
	errLoginForm    = deniedError("the login cookie of the browser is malformed")
	errLoginTwice   = deniedError("the browser sent two login cookies")
	errLoginExpired = deniedError("the login of the browser has expired")
	errLoginForeign = deniedError("the login of the browser is from another service, or its credential has changed")
)

// Verify verifies the text of a cookie.
func (l *LoginCookies) Verify(text string) (Identity, error) {
	if text == "" || len(text) > maxLogin {
		return Identity{}, errLoginForm
	}
	bound, ok := l.boundValues(text[0])
	if !ok {
		return Identity{}, errLoginForeign
	}
	raw, err := l.signer.Verify(loginPurpose, text[1:], LoginTTL, bound...)
	switch {
	case errors.Is(err, ErrSignedTextExpired):
		return Identity{}, errLoginExpired
	case err != nil:
		return Identity{}, errLoginForeign
	}
	if text[0] == rootLogin {
		return root, nil
	}
	var content loginClaims
	if err := json.Unmarshal(raw, &content); err != nil {
		return Identity{}, errLoginForm
	}
	if text[0] == keyLogin {
		return l.keyIdentity(content)
	}
	return externalIdentity(content.Name, content.Groups, ByOIDC)
}

// keyIdentity returns the identity of a login with an API key, with the current groups of the key.
func (l *LoginCookies) keyIdentity(content loginClaims) (Identity, error) {
	key, ok := l.keys.GetUnexpired(content.KeyID)
	if !ok || key.Generation != content.KeyGeneration {
		return Identity{}, errSessionKey
	}
	return Identity{Name: key.ID, Groups: key.Groups, KeyID: key.ID, Method: ByKey}, nil
}

// endOf returns when a login that Verify has accepted ends: with its cookie, or before that with its API key.
func (l *LoginCookies) endOf(text string, who Identity) time.Time {
	ends := signedAt(text[1:]).Add(LoginTTL)
	if who.KeyID == "" {
		return ends
	}
	if key, ok := l.keys.GetUnexpired(who.KeyID); ok && key.Expires.Before(ends) {
		return key.Expires
	}
	return ends
}

// identify returns the user that a browser has logged in; ok is false when it sends no login
// cookie.
func (l *LoginCookies) identify(r *http.Request) (who Identity, ok bool, err error) {
	size := 0
	for _, line := range r.Header["Cookie"] {
		size += len(line)
	}
	switch {
	case size == 0:
		return Identity{}, false, nil
	case size > maxCookies:
		return Identity{}, false, errLoginForm
	}
	for _, name := range []string{SecureLoginCookie, LoginCookie} {
		switch kept := r.CookiesNamed(name); len(kept) {
		case 0:
		case 1:
			who, err = l.Verify(kept[0].Value)
			if err == nil {
				who.Ends = l.endOf(kept[0].Value, who)
			}
			return who, err == nil, err
		default:
			return Identity{}, false, errLoginTwice
		}
	}
	return Identity{}, false, nil
}
