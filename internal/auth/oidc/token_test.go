package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/oidc/oidctest"
	"github.com/buildyard/buildyard/internal/farm"
)

var _ = auth.Authenticator{JWT: (&Provider{}).Verify}

func mine(more map[string]any) map[string]any {
	all := map[string]any{"aud": clientID, "preferred_username": "ann", "groups": []string{"ci"}}
	maps.Copy(all, more)
	return all
}

func TestBearer(t *testing.T) {
	s := newSite(t)
	now := time.Now()
	for _, c := range []struct {
		name   string
		claims map[string]any
		user   string // "": refused
		groups []string
		says   string
	}{
		{"good", nil, "ann", []string{"ci"}, ""},
		{"several audiences", map[string]any{"aud": []string{"x", clientID}}, "ann", []string{"ci"}, ""},
		{"azp", map[string]any{"aud": "api", "azp": clientID}, "ann", []string{"ci"}, ""},
		{"no audience but azp", map[string]any{"aud": nil, "azp": clientID}, "ann", []string{"ci"}, ""},
		{"groups as text", map[string]any{"groups": " b  a b"}, "ann", []string{"a", "b"}, ""},
		{"one group", map[string]any{"groups": "ci"}, "ann", []string{"ci"}, ""},
		{"group with a space", map[string]any{"groups": []string{"a b", "", "c"}}, "ann", []string{"a b", "c"}, ""},
		{"no groups", map[string]any{"groups": nil}, "ann", nil, ""},
		{
			"of a program",
			map[string]any{"preferred_username": nil, "sub": "ci-plugin"},
			"ci-plugin",
			[]string{"ci"},
			"",
		},
		{"soon valid", map[string]any{"nbf": now.Add(time.Minute).Unix()}, "ann", []string{"ci"}, ""},

		{"other audience", map[string]any{"aud": "other"}, "", nil, "not issued for this client"},
		{"other azp", map[string]any{"aud": "other", "azp": "other"}, "", nil, "not issued for this client"},
		{"no audience", map[string]any{"aud": nil}, "", nil, "not issued for this client"},
		{"azp no text", map[string]any{"aud": nil, "azp": []string{clientID}}, "", nil, "not issued for this client"},
		{"client_id alone", map[string]any{"aud": nil, "client_id": clientID}, "", nil, "not issued for this client"},
		{"expired", map[string]any{"exp": now.Add(-time.Second).Unix()}, "", nil, "expired"},
		{"no expiry", map[string]any{"exp": nil}, "", nil, "expired"},
		{"not yet valid", map[string]any{"nbf": now.Add(time.Hour).Unix()}, "", nil, "not before"},
		{"other issuer", map[string]any{"iss": "https://evil.test"}, "", nil, "issued by a different provider"},
		{"no issuer", map[string]any{"iss": nil}, "", nil, "issued by a different provider"},
		{"logout", map[string]any{"events": map[string]any{"x": 1}}, "", nil, "logout token"},
		{"user no text", map[string]any{"preferred_username": 7}, "", nil, `the user name claim "preferred_username"`},
		{"user empty", map[string]any{"preferred_username": ""}, "", nil, `the user name claim "preferred_username"`},
		{
			"user of two lines",
			map[string]any{"preferred_username": "a\nb"},
			"",
			nil, `the user name claim "preferred_username"`,
		},
		{
			"user long",
			map[string]any{"preferred_username": strings.Repeat("a", maxName+1)},
			"", nil,
			`the user name claim "preferred_username"`,
		},
		{
			"nobody",
			map[string]any{"preferred_username": nil, "sub": nil},
			"", nil,
			`the user name claim "preferred_username"`,
		},
		{"root", map[string]any{"preferred_username": "Root"}, "", nil, "reserved for the root user"},
		{"groups no texts", map[string]any{"groups": []any{1}}, "", nil, "neither a string nor a list"},
		{"groups object", map[string]any{"groups": map[string]any{}}, "", nil, "neither a string nor a list"},
		{"group of two lines", map[string]any{"groups": []string{"a\nb"}}, "", nil, "unprintable characters"},
		{"many groups", map[string]any{"groups": strings.Repeat("g ", maxGroups+1)}, "", nil, "more than 1000 groups"},
		{"long token", map[string]any{"x": strings.Repeat("x", maxToken)}, "", nil, "longer than 16384 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			token := s.idp.Sign(t, mine(c.claims))
			user, groups, err := s.Verify(t.Context(), token)
			if c.user == "" {
				refusedAs(t, err, farm.CodeUnauthenticated, c.says)
				return
			}
			if err != nil || user != c.user || !slices.Equal(groups, c.groups) {
				t.Errorf("%v %v %v", user, groups, err)
			}
		})
	}
}

func refusedAs(t *testing.T, err error, code farm.Code, says string) {
	t.Helper()
	if farm.CodeOf(err) != code || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want a refusal that says %q", err, says)
	}
}

func TestUnverifiedAddress(t *testing.T) {
	s := newSite(t, func(o *Options) { o.UsernameClaim, o.GroupsClaim = "email", "https://claims.test/roles" })
	for verified, ok := range map[any]bool{
		nil: true, true: true, "true": true, false: false, "false": false, 1: false,
	} {
		claims := mine(map[string]any{
			"email": "ann@build.test", "email_verified": verified, "https://claims.test/roles": "ci",
		})
		user, groups, err := s.Verify(t.Context(), s.idp.Sign(t, claims))
		if ok != (err == nil) || ok != (user == "ann@build.test") || ok != slices.Equal(groups, []string{"ci"}) {
			t.Errorf("%v: %v %v %v", verified, user, groups, err)
		}
	}
}

// keysAnswer answers with a set of keys.
func keysAnswer(keys ...jose.JSONWebKey) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: keys})
	}
}

func TestSignatures(t *testing.T) {
	s := newSite(t)
	big, _ := rsa.GenerateKey(rand.Reader, 2048)
	stranger, _ := rsa.GenerateKey(rand.Reader, 2048)
	curve, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	public, edwards, _ := ed25519.GenerateKey(rand.Reader)
	shared := []byte(strings.Repeat("s", 64))
	der, _ := x509.MarshalPKIXPublicKey(big.Public())
	s.idp.Instead("/keys", keysAnswer(
		jose.JSONWebKey{Key: big.Public(), KeyID: "rsa"},
		jose.JSONWebKey{Key: curve.Public(), KeyID: "ec", Algorithm: "ES256"},
		jose.JSONWebKey{Key: public, KeyID: "ed"}, jose.JSONWebKey{Key: shared, KeyID: "shared"},
		jose.JSONWebKey{Key: stranger.Public(), KeyID: "enc", Use: "enc"},
		jose.JSONWebKey{Key: stranger, KeyID: "private"},
		jose.JSONWebKey{Key: big.Public(), KeyID: "only-ps", Algorithm: "PS256"},
	))
	claims := mine(map[string]any{"iss": s.idp.URL, "exp": time.Now().Add(time.Hour).Unix()})
	sign := func(alg jose.SignatureAlgorithm, key any, id, typ string) string {
		return oidctest.SignWith(t, jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, typ,
			claims)
	}
	good := sign("RS256", big, "rsa", "JWT")
	parts := strings.Split(good, ".")
	head := func(text string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(text)) + "." + parts[1] + "." + parts[2]
	}
	for name, c := range map[string]struct{ token, says string }{
		"RS256":         {good, ""},
		"RS512":         {sign("RS512", big, "rsa", "at+jwt"), ""},
		"PS384":         {sign("PS384", big, "rsa", "application/at+JWT"), ""},
		"ES256":         {sign("ES256", curve, "ec", "JWT"), ""},
		"EdDSA":         {sign("EdDSA", edwards, "ed", ""), ""},
		"no kid":        {sign("RS256", big, "", "JWT"), ""},
		"ES for RS":     {sign("ES256", curve, "rsa", "JWT"), "failed to verify signature"},
		"other alg":     {sign("RS256", big, "only-ps", "JWT"), "failed to verify signature"},
		"unknown key":   {sign("RS256", stranger, "none", "JWT"), "failed to verify signature"},
		"wrong key":     {sign("RS256", stranger, "rsa", "JWT"), "failed to verify signature"},
		"for secrecy":   {sign("RS256", stranger, "enc", "JWT"), "failed to verify signature"},
		"private":       {sign("RS256", stranger, "private", "JWT"), "failed to verify signature"},
		"shared secret": {sign("HS256", shared, "shared", "JWT"), `signature algorithm "HS256"`},
		"public as HS":  {sign("HS256", der, "rsa", "JWT"), `signature algorithm "HS256"`},
		"none":          {strings.TrimSuffix(head(`{"alg":"none"}`), parts[2]), `signature algorithm "none"`},
		"none, signed":  {head(`{"alg":"None","kid":"rsa"}`), `signature algorithm "None"`},
		"alg twice":     {head(`{"alg":"HS256","alg":"RS256","kid":"rsa"}`), "malformed"},
		"no alg":        {head(`{}`), `signature algorithm ""`},
		"crit":          {head(`{"alg":"RS256","kid":"rsa","crit":["b64"]}`), "requires unsupported extensions"},
		"own key": {oidctest.SignWith(t,
			jose.SigningKey{Algorithm: "RS256", Key: jose.JSONWebKey{Key: stranger, KeyID: "rsa"}}, "JWT",
			claims), "failed to verify signature"},
		"logout":            {sign("RS256", big, "rsa", "logout+jwt"), `has the type "logout+jwt"`},
		"long kid":          {sign("RS256", big, strings.Repeat("k", maxKeyID+1), "JWT"), "longer than 256"},
		"long header":       {head(`{"alg":"RS256","x":"` + strings.Repeat("x", maxHeader) + `"}`), "not a JWT"},
		"empty":             {"", "not a JWT"},
		"dots":              {"..", "not a JWT"},
		"four parts":        {good + ".x", "not a JWT"},
		"not a JSON object": {head("x"), "not a JWT"},
		"whitespace":        {" " + good, "not a JWT"},
		"cut":               {good[:len(good)-4], "failed to verify signature"},
		"JSON form": {`{"protected":"` + parts[0] + `","payload":"` + parts[1] + `","signature":"` + parts[2] +
			`"}`, "not a JWT"},
		"other payload": {parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"root"}`)) + "." +
			parts[2], "failed to verify signature"},
	} {
		t.Run(name, func(t *testing.T) {
			user, groups, err := s.Verify(t.Context(), c.token)
			if c.says == "" {
				if err != nil || user != "ann" {
					t.Errorf("%v %v %v", user, groups, err)
				}
				return
			}
			refusedAs(t, err, farm.CodeUnauthenticated, c.says)
			if len(parts[2]) > 10 && strings.Contains(fmt.Sprint(err), parts[2]) {
				t.Errorf("the error holds the token: %v", err)
			}
		})
	}
}

func TestClientCredentials(t *testing.T) {
	s := newSite(t)
	s.idp.LogsIn("", map[string]any{"groups": []string{"ci"}})
	config := clientcredentials.Config{ClientID: clientID, ClientSecret: clientSecret, TokenURL: s.idp.URL +
		"/token", EndpointParams: url.Values{"audience": {clientID}}}
	token, err := config.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	user, groups, err := s.Verify(t.Context(), token.AccessToken)
	if err != nil || user != clientID || !slices.Equal(groups, []string{"ci"}) {
		t.Errorf("%v %v %v", user, groups, err)
	}
	s.idp.Client(t, "stranger", clientSecret, s.url)
	config = clientcredentials.Config{ClientID: "stranger", ClientSecret: clientSecret, TokenURL: s.idp.URL + "/token"}
	if token, err = config.Token(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Verify(t.Context(), token.AccessToken)
	refusedAs(t, err, farm.CodeUnauthenticated, "not issued for this client")
}

// TestRotation: a new key is accepted immediately, an old one until the next fetch, and no caller
// can make this service fetch keys arbitrarily often.
func TestRotation(t *testing.T) {
	s := newSite(t)
	verify := func(token string) error { _, _, err := s.Verify(t.Context(), token); return err }
	old := s.idp.Sign(t, mine(nil))
	if err := verify(old); err != nil {
		t.Fatal(err)
	}
	s.ahead.Add(int64(minFetchInterval))
	s.idp.Rotate(t)
	fresh := s.idp.Sign(t, mine(nil))
	if err := verify(fresh); err != nil {
		t.Fatal(err)
	}
	if err := verify(old); err == nil {
		t.Error("a key that was taken back counts")
	}
	before := s.idp.Asked("/keys")
	stranger, _ := rsa.GenerateKey(rand.Reader, 2048)
	for i := range 50 {
		junk := oidctest.SignWith(t, jose.SigningKey{
			Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: stranger, KeyID: fmt.Sprint(i)},
		}, "JWT", mine(nil))
		if verify(junk) == nil {
			t.Fatal("junk counts")
		}
		if err := verify(fresh); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.idp.Asked("/keys") - before; n > 0 {
		t.Errorf("asked %d times for keys within %v", n, minFetchInterval)
	}
	s.ahead.Add(int64(minFetchInterval))
	for range 50 {
		_ = verify(old)
	}
	if n := s.idp.Asked("/keys") - before; n != 1 {
		t.Errorf("asked %d times for keys", n)
	}
	// The provider revokes a key: it is accepted until the keys are fetched again automatically.
	s.idp.Rotate(t)
	if err := verify(fresh); err != nil {
		t.Fatal(err)
	}
	s.ahead.Add(int64(refreshAfter + time.Second))
	_ = verify(fresh) // begins it
	for range 1000 {
		if err := verify(fresh); err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("a key that was taken back counts for good")
}

// TestProviderAway: a service starts without its provider, raises an alarm, and connects to it
// later.
func TestProviderAway(t *testing.T) {
	s := newSite(t)
	s.idp.LogsIn("u-1", claimsOfAnn())
	s.idp.Away(true)
	refusedAs(t, s.Prefetch(t.Context()), farm.CodeUnavailable, providerUnavailable)
	token := s.idp.Sign(t, mine(nil))
	_, _, err := s.Verify(t.Context(), token)
	refusedAs(t, err, farm.CodeUnavailable, "answers 502")
	status, text := visit(t, browser(t), s.url+"/login")
	expect(t, status, text, 503, "The identity provider cannot be reached; try again later.")
	// description and keys
	if l := s.log.String(); strings.Count(l, "identity provider cannot be reached; the next login retries") != 2 ||
		s.Alarm() == "" {
		t.Errorf("alarm %q, log: %s", s.Alarm(), l)
	}
	if n := s.idp.Asked(discoveryPath); n != 1 {
		t.Errorf("asked %d times at once", n)
	}
	s.idp.Away(false)
	s.ahead.Add(int64(2 * time.Second))
	if _, _, err := s.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	status, text = visit(t, browser(t), s.url+"/login")
	expect(t, status, text, 200, "ann")
	if l := s.log.String(); !strings.Contains(l, "identity provider reached") || s.Alarm() != "" {
		t.Errorf("alarm %q, log: %s", s.Alarm(), l)
	}
	s.idp.Away(true) // what is known continues to count, for a day
	s.ahead.Add(int64(time.Hour / 2))
	if _, _, err := s.Verify(t.Context(), token); err != nil {
		t.Error(err)
	}
	s.ahead.Add(int64(maxAge))
	_, _, err = s.Verify(t.Context(), token)
	refusedAs(t, err, farm.CodeUnavailable, providerUnavailable)
}

func TestWrongProviders(t *testing.T) {
	describe := func(change map[string]any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			u := "http://" + r.Host
			all := map[string]any{"issuer": u, "jwks_uri": u + "/keys", "authorization_endpoint": u +
				"/auth", "token_endpoint": u + "/token"}
			maps.Copy(all, change)
			_ = json.NewEncoder(w).Encode(all)
		}
	}
	small, _ := rsa.GenerateKey(rand.Reader, 2048)
	many := slices.Repeat([]jose.JSONWebKey{{Key: small.Public(), KeyID: "x"}}, maxKeys+1)
	for says, c := range map[string]struct {
		path string
		h    http.HandlerFunc
	}{
		"issuer mismatch":        {discoveryPath, describe(map[string]any{"issuer": "https://evil.test"})},
		`has the URL "http://ev`: {discoveryPath, describe(map[string]any{"jwks_uri": "http://evil.test/keys"})},
		`has the URL ""`:         {discoveryPath, describe(map[string]any{"token_endpoint": ""})},
		"invalid response of": {
			discoveryPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		},
		"too large": {discoveryPath, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"x":"` + strings.Repeat("x", maxResponseBytes)))
		}},
		"not of the form https": {discoveryPath, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://evil.test/", http.StatusFound)
		}},
		"unexpected redirect": {discoveryPath, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}},
		"has no usable signature key": {"/keys", keysAnswer()},
		"has more than 100 keys":      {"/keys", keysAnswer(many...)},
		"keys answers 404":            {"/keys", http.NotFound},
	} {
		s := newSite(t)
		s.idp.Instead(c.path, c.h)
		err := s.Prefetch(t.Context())
		refusedAs(t, err, farm.CodeUnavailable, says)
		if strings.Contains(fmt.Sprint(err), "<html>") {
			t.Errorf("the error holds the answer: %v", err)
		}
	}
	s := newSite(t)
	s.idp.Instead(discoveryPath, func(w http.ResponseWriter, r *http.Request) {
		describe(map[string]any{"issuer": s.idp.URL + "/"})(w, r)
	})
	if err := s.Prefetch(t.Context()); err != nil { // a slash more is the same provider
		t.Error(err)
	}
}

// TestWrongExchanges: wrong responses to a code, by the provider or an impostor.
func TestWrongExchanges(t *testing.T) {
	s := newSite(t)
	s.idp.LogsIn("u-1", claimsOfAnn())
	var nonce string
	login := func() (int, string) {
		b := browser(t)
		to, _ := step(t, b, s.url+"/login").Location()
		nonce = to.Query().Get("nonce")
		callback, _ := step(t, b, to.String()).Location()
		return visit(t, b, callback.String())
	}
	token := func(claims map[string]any) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			all := mine(map[string]any{"nonce": nonce})
			maps.Copy(all, claims)
			_ = json.NewEncoder(w).Encode(
				map[string]any{"access_token": "a-token", "token_type": "Bearer", "id_token": s.idp.Sign(t, all)})
		}
	}
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	const unusable = "The answer of the identity provider cannot be used; the log says why."
	for _, c := range []struct {
		name   string
		h      http.HandlerFunc
		status int
		says   string
		logs   string
	}{
		{"good", token(nil), 200, `ann ["ci"] /`, ""},
		{"azp", token(map[string]any{"aud": []string{clientID, "api"}, "azp": clientID}), 200, "ann", ""},
		{"other nonce", token(map[string]any{"nonce": "x"}), 403, unusable, "(nonce)"},
		{"no nonce", token(map[string]any{"nonce": nil}), 403, unusable, "(nonce)"},
		{"other audience", token(map[string]any{"aud": "api", "azp": clientID}), 403, unusable, "expected audience"},
		{"other azp", token(map[string]any{"azp": "api"}), 403, unusable, "(azp)"},
		{"several audiences", token(map[string]any{"aud": []string{clientID, "api"}}), 403, unusable, "(azp)"},
		{"other at_hash", token(map[string]any{"at_hash": "x"}), 403, unusable, "(at_hash)"},
		{"expired", token(map[string]any{"exp": 1}), 403, unusable, "expired"},
		{
			"no ID token", text(200, `{"access_token":"a-token","token_type":"Bearer"}`), 403, unusable,
			"not a JWT",
		},
		{"no token", text(200, `{}`), 403, unusable, "missing access_token"},
		{"not a JSON object", text(200, `oops hidden-text`), 403, unusable, "cannot parse json"},
		{
			"refused", text(400, `{"error":"invalid_grant","error_description":"<i>no\nmore</i>"}`),
			403, "The identity provider refused the login (invalid_grant: <i>no more</i>).", "",
		},
		{"broken", text(500, `hidden-text`), 403, unusable, "responded with status 500"},
		{"elsewhere", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/token2", http.StatusTemporaryRedirect)
		}, 503, providerUnavailable, "unexpected redirect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.idp.Instead("/token", c.h)
			status, said := login()
			expect(t, status, said, c.status, c.says)
			l := s.log.String()
			if !strings.Contains(l, c.logs) {
				t.Errorf("the log does not say %q: %s", c.logs, l)
			}
			for _, secret := range []string{clientSecret, "a-token", "hidden-text"} {
				if strings.Contains(l, secret) || strings.Contains(said, secret) {
					t.Errorf("%q is told: %s", secret, l)
				}
			}
		})
	}
}

func FuzzTokenHeader(f *testing.F) {
	for _, h := range []string{
		`{"alg":"RS256","kid":"x","typ":"JWT"}`, `{"alg":"none"}`, `{"alg":"HS256"}`,
		`{"crit":null,"alg":"ES256"}`, `[]`, `{"alg":{}}`,
	} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(h)) + ".e30.c2ln")
	}
	f.Add("..")
	idp := oidctest.New(f)
	p, err := New(Options{ClientID: clientID, ProviderURL: idp.URL, Signer: signer})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, token string) {
		h, err := parseHeader(token)
		if err == nil && (!slices.Contains(algorithms, h.Algorithm) || len(token) > maxToken ||
			strings.HasPrefix(strings.ToUpper(string(h.Algorithm)), "HS")) {
			t.Errorf("%q passes: %v", token, h)
		}
		if _, _, err := p.Verify(t.Context(), token); farm.CodeOf(err) != farm.CodeUnauthenticated {
			t.Errorf("%q: %v", token, err)
		}
	})
}

func FuzzLogin(f *testing.F) {
	p, err := New(Options{ClientID: clientID, ProviderURL: "https://idp.test", Signer: signer})
	if err != nil {
		f.Fatal(err)
	}
	own := p.signFlow(loginFlow{State: "s", ReturnPath: "/", ExpiresAt: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)})
	for _, s := range []string{own, "", ".", own +
		".", "/a", "//evil", "/\\evil", "/a?b#c", "/%2f%2fevil", "http://evil"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := p.verifyFlow(text); err == nil && text != own {
			t.Errorf("forged: %q", text)
		}
		to := LocalPath(text)
		u, err := url.Parse(to)
		if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") ||
			strings.ContainsAny(to, "\\\r\n") {
			t.Errorf("%q leads to %q", text, to)
		}
		if said := printableText(text); strings.ContainsAny(said, "\r\n\x1b") ||
			len([]rune(said)) > maxProviderMessage+1 {
			t.Errorf("%q is said as %q", text, said)
		}
	})
}

func FuzzGroups(f *testing.F) {
	for _, s := range []string{`"a b"`, `["a","b"]`, `null`, `7`, `["a",1]`, `"\u0000"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		groups, err := claims{"groups": raw}.groupsClaim("groups")
		if err == nil && slices.ContainsFunc(groups, func(g string) bool { return !isPlainName(g) }) {
			t.Errorf("%q gives %q", raw, groups)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	big, _ := rsa.GenerateKey(rand.Reader, 2048)
	curve, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	idp := oidctest.New(b)
	idp.Instead("/keys", keysAnswer(jose.JSONWebKey{Key: big.Public(), KeyID: "rsa"},
		jose.JSONWebKey{Key: curve.Public(), KeyID: "ec"}))
	p, err := New(Options{ClientID: clientID, ProviderURL: idp.URL, Signer: signer})
	if err != nil {
		b.Fatal(err)
	}
	if err := p.Prefetch(context.Background()); err != nil {
		b.Fatal(err)
	}
	claims := mine(map[string]any{"iss": idp.URL, "exp": time.Now().Add(time.Hour).Unix()})
	for name, key := range map[string]jose.SigningKey{
		"RS256": {Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: big, KeyID: "rsa"}},
		"ES256": {Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: curve, KeyID: "ec"}},
	} {
		token := oidctest.SignWith(b, key, "JWT", claims)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := p.Verify(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
