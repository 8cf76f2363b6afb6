package auth

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

const issuer = "https://login.test"

func newLogins(t *testing.T, token string) *LoginCookies {
	t.Helper()
	r, err := NewRootToken(token)
	must(t, err)
	return NewLoginCookies(NewSigner(NewKeyRing(time.Now())), r, issuer, nil)
}

func opened(t *testing.T, l *LoginCookies, who Identity) string {
	t.Helper()
	text, err := l.Issue(who)
	must(t, err)
	return text
}

func TestLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogins(t, "0123456789")
		otto := Identity{Name: "otto", Groups: []string{"a b", "ü"}, Method: ByOIDC}
		ofRoot, ofOtto := opened(t, l, root), opened(t, l, otto)
		for text, want := range map[string]Identity{ofRoot: root, ofOtto: otto} {
			if who, err := l.Verify(text); err != nil || !reflect.DeepEqual(who, want) {
				t.Errorf("%+v, %v; want %+v", who, err, want)
			}
		}
		if strings.Contains(ofRoot, "0123456789") || !strings.HasPrefix(ofRoot, "r") {
			t.Error("the cookie of root holds the token")
		}
		refuse := func(l *LoginCookies, text string, reason *farm.Error) {
			t.Helper()
			_, err := l.Verify(text)
			refusedAs(t, err, reason)
		}
		other := newLogins(t, "0123456789")
		refuse(other, ofRoot, errLoginForeign)
		changed := NewLoginCookies(l.signer, other.root, "https://other.test", nil)
		if _, err := changed.Verify(ofRoot); err != nil {
			t.Error(err)
		}
		refuse(changed, ofOtto, errLoginForeign)
		refuse(NewLoginCookies(l.signer, newLogins(t, "another token").root, issuer, nil), ofRoot, errLoginForeign)
		refuse(NewLoginCookies(l.signer, nil, issuer, nil), ofRoot, errLoginForeign)
		refuse(NewLoginCookies(l.signer, l.root, "", nil), ofOtto, errLoginForeign)
		refuse(l, "p"+ofRoot[1:], errLoginForeign)
		refuse(l, "r"+ofOtto[1:], errLoginForeign)
		refuse(l, ofOtto[:len(ofOtto)-4], errLoginForeign)
		refuse(l, "p"+l.signer.Sign(sessionPurpose, []byte(`{"n":"otto"}`), string(ByOIDC), issuer), errLoginForeign)
		refuse(l, "", errLoginForm)
		refuse(l, strings.Repeat("r", 1<<20), errLoginForm)
		refuse(l, strings.Repeat("r", maxLogin+1), errLoginForm)
		refuse(l, strings.Repeat("r", maxLogin), errLoginForeign)
		time.Sleep(LoginTTL + time.Second)
		refuse(l, ofRoot, errLoginExpired)
	})
}

// TestLoginsOfOthers: what cannot be verified later is not made.
func TestLoginsOfOthers(t *testing.T) {
	l := newLogins(t, "0123456789")
	many := make([]string, 400)
	for i := range many {
		many[i] = fmt.Sprint("a group of some length ", i)
	}
	_, err := l.Issue(Identity{Name: "otto", Groups: many, Method: ByOIDC})
	refusedWith(t, err, farm.CodeRefused, "You are in 400 groups")
	for name, who := range map[string]Identity{
		"a key": {Name: "ci", KeyID: "ci", Method: ByKey}, "nobody": {}, "root by name": {Name: "Root", Method: ByOIDC},
		"no name": {Method: ByOIDC}, "a name of two lines": {Name: "a\nb", Method: ByOIDC},
	} {
		if text, err := l.Issue(who); err == nil {
			t.Errorf("%s: %s", name, text)
		}
	}
	if _, err := NewLoginCookies(l.signer, nil, issuer, nil).Issue(root); err == nil {
		t.Error("root logs in without a token")
	}
	if _, err := NewLoginCookies(l.signer, l.root, "", nil).Issue(Identity{Name: "otto", Method: ByOIDC}); err == nil {
		t.Error("a user logs in without a provider")
	}
}

func TestIdentifyBrowser(t *testing.T) {
	w := newWorld(t)
	a := complete(t, w)
	a.Logins = NewLoginCookies(w.signer, a.Root, issuer, nil)
	good := opened(t, a.Logins, Identity{Name: "otto", Method: ByOIDC})
	asRoot := opened(t, a.Logins, root)
	for name, c := range map[string]struct {
		header, cn string
		cookies    []string
		want       string
		reason     *farm.Error
	}{
		"cookie":      {cookies: []string{LoginCookie + "=" + good}, want: "otto"},
		"safe cookie": {cookies: []string{SecureLoginCookie + "=" + good}, want: "otto"},
		"the safe one counts": {
			cookies: []string{LoginCookie + "=" + asRoot + "; " + SecureLoginCookie + "=" + good}, want: "otto",
		},
		"among others": {
			cookies: []string{"theme=dark; " + LoginCookie + "=" + good, "x=y"}, want: "otto",
		},
		"before the certificate": {cn: "anna", cookies: []string{LoginCookie + "=" + good}, want: "otto"},
		"after the header": {
			header: "Bearer x", cookies: []string{LoginCookie + "=" + good}, reason: errBearerForm,
		},
		"wrong, with a certificate":  {cn: "anna", cookies: []string{LoginCookie + "=p"}, reason: errLoginForeign},
		"empty":                      {cookies: []string{LoginCookie + "="}, reason: errLoginForm},
		"other cookies":              {cookies: []string{"theme=dark"}, reason: errNoCredentials},
		"other cookies, certificate": {cn: "anna", cookies: []string{"theme=dark"}, want: "anna"},
		"two": {
			cookies: []string{LoginCookie + "=" + good + "; " + LoginCookie + "=" + asRoot}, reason: errLoginTwice,
		},
		"as many as are read": {cookies: []string{
			"x=" + strings.Repeat("y", maxCookies-len("x=; "+LoginCookie+"="+good)) + "; " + LoginCookie + "=" + good,
		}, want: "otto"},
		"a byte more": {
			cookies: []string{"x=" + strings.Repeat("y", maxCookies-len("x=; "+LoginCookie+"="+good)) +
				"; ", LoginCookie + "=" + good + " "}, reason: errLoginForm,
		},
		"a megabyte of other cookies": {
			cookies: []string{"x=" + strings.Repeat("y", 1<<20) + "; " + LoginCookie + "=" + good},
			reason:  errLoginForm,
		},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		r.Header.Set("Test-CN", c.cn)
		r.Header["Cookie"] = c.cookies
		if who, shown, err := a.Logins.identify(r); shown != (who.Name != "") || shown && err != nil {
			t.Errorf("%s: it shows a log-in: %t, %+v, %v", name, shown, who, err)
		} else if left := time.Until(who.Ends); shown && (left > LoginTTL || left < LoginTTL-time.Hour) {
			t.Errorf("%s: the log-in ends in %s", name, left)
		}
		who, err := a.Identify(r)
		if c.reason != nil && !errors.Is(err, c.reason) || c.reason == nil && err != nil || who.Name != c.want {
			t.Errorf("%s: %q, %v", name, who.Name, err)
		}
	}
	if s := a.Schemes(); !reflect.DeepEqual(s, []string{"Basic", "Bearer"}) || (&Authenticator{}).Schemes() != nil {
		t.Error(s)
	}
}

func TestLocal(t *testing.T) {
	for _, c := range []struct {
		name   string
		groups []string
		ok     bool
	}{
		{"", nil, true},
		{"anna", []string{"dev"}, true},
		{"", []string{"dev"}, false},
		{"root", nil, false},
		{"a\nb", nil, false},
		{"anna", make([]string, maxGroups), true},
		{"anna", make([]string, maxGroups+1), false},
	} {
		who, err := LocalIdentity(c.name, c.groups)
		if (err == nil) != c.ok || c.ok && (who.Method != ByLocal || who.Name != c.name || who.Root) {
			t.Errorf("%q %q: %+v, %v", c.name, c.groups, who, err)
		}
	}
}

// TestFailuresOfAddresses: addresses have allowances of their own, and names do not count.
func TestFailuresOfAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f FailureLimiter
		for i := range failureBurst + 5 {
			if got := f.CountFrom("192.0.2.1"); got != (i >= failureBurst) {
				t.Fatal(i, got)
			}
			if f.CountFrom(fmt.Sprintf("198.51.100.%d", i)) {
				t.Fatal("another address is refused")
			}
		}
	})
}

// TestLoginWithKey: a login with an API key has the current groups of the key, and ends with the key.
func TestLoginWithKey(t *testing.T) {
	w := newWorld(t)
	w.add(t, "ci", "builders")
	l := NewLoginCookies(w.signer, nil, "", w.keys)
	session, err := w.sessions.Verify(bearer(t, w.session(t, "ci")))
	must(t, err)
	text, err := l.Issue(session)
	must(t, err)
	who, err := l.Verify(text)
	if err != nil || who.KeyID != "ci" || who.Method != ByKey || len(who.Groups) != 1 || who.Groups[0] != "builders" {
		t.Errorf("%+v, %v", who, err)
	}
	if _, err := NewLoginCookies(w.signer, nil, "", nil).Verify(text); !errors.Is(err, errLoginForeign) {
		t.Errorf("a service without keys: %v", err)
	}
	must(t, w.keys.Delete(t.Context(), "ci"))
	if _, err := l.Verify(text); !errors.Is(err, errSessionKey) {
		t.Errorf("after the deletion of the key: %v", err)
	}
	w.add(t, "ci", "builders")
	if _, err := l.Verify(text); !errors.Is(err, errSessionKey) {
		t.Errorf("with another key of this ID: %v", err)
	}
}
