package auth

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

var errExpired = errors.New("expired yesterday")

// complete takes every kind of credentials.
func complete(t testing.TB, w *world) *Authenticator {
	t.Helper()
	r, err := NewRootToken("0123456789")
	must(t, err)
	return &Authenticator{
		Root: r, Sessions: w.sessions,
		Certificate: func(r *http.Request) (string, []string, bool, error) {
			switch cn := r.Header.Get("Test-CN"); cn {
			case "":
				return "", nil, false, nil
			case "expired":
				return "", nil, false, errExpired
			default:
				return cn, []string{"dev"}, true, nil
			}
		},
		JWT: func(_ context.Context, token string) (string, []string, error) {
			switch token {
			case "a.b.c":
				return "otto", make([]string, 3), nil
			case "a.b.many":
				return "otto", make([]string, 5000), nil
			case "a.b.down":
				return "", nil, farm.Unavailable(errExpired, "The identity provider cannot be reached")
			case "a.b.odd":
				return "", nil, farm.Errorf(farm.CodeNotFound, "expired yesterday")
			case "a.b.root":
				return "Root", nil, nil
			default:
				return "", nil, errExpired
			}
		},
	}
}

func TestIdentify(t *testing.T) {
	w := newWorld(t)
	w.add(t, "ci", "a")
	session := bearer(t, w.session(t, "ci"))
	all, none := complete(t, w), &Authenticator{}
	const rootBasic = "Basic cm9vdDowMTIzNDU2Nzg5"
	for name, c := range map[string]struct {
		header, cn string
		method     Method
		reason     string
	}{
		"nothing":                       {"", "", "", "no credentials"},
		"root":                          {rootBasic, "", ByRoot, ""},
		"lower case, spaces":            {"  basic   cm9vdDowMTIzNDU2Nzg5  ", "", ByRoot, ""},
		"no user":                       {"Basic OjAxMjM0NTY3ODk", "", ByRoot, ""},
		"wrong token":                   {"Basic cm9vdDowMTIzNDU2Nzg4", "", "", "the root token is wrong"},
		"session":                       {"Bearer " + session, "", ByKey, ""},
		"session, lower case":           {"bearer  " + session, "", ByKey, ""},
		"broken session":                {"Bearer x" + session, "", "", "not a session"},
		"only the scheme":               {"Bearer", "", "", "not a session"},
		"another scheme":                {"Digest x", "", "", "unknown or disabled"},
		"an empty header":               {" ", "", "", "unknown or disabled"},
		"certificate":                   {"", "anna", ByCertificate, ""},
		"expired certificate":           {"", "expired", "", "expired yesterday"},
		"a certificate for root":        {"", "root", "", "user name"},
		"a certificate without a name":  {"", " ", "", "user name"},
		"wrong, beside a certificate":   {"Basic cm9vdDowMTIzNDU2Nzg4", "anna", "", "the root token is wrong"},
		"root, beside a certificate":    {rootBasic, "anna", ByRoot, ""},
		"JWT":                           {"Bearer a.b.c", "", ByOIDC, ""},
		"expired JWT":                   {"Bearer a.b.d", "", "", "expired yesterday"},
		"JWT that is not found":         {"Bearer a.b.odd", "", "", "expired yesterday"},
		"JWT for root":                  {"Bearer a.b.root", "", "", "user name"},
		"JWT with very many groups":     {"Bearer a.b.many", "", "", "user name"},
		"a megabyte":                    {"Bearer " + strings.Repeat("A", 1<<20), "", "", "not a session"},
		"a megabyte for the root user":  {"Basic " + strings.Repeat("A", 1<<20), "", "", "malformed"},
		"a token in the form of Bearer": {"Bearer cm9vdDowMTIzNDU2Nzg5", "", "", "not a session"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		r.Header.Set("Test-CN", c.cn)
		who, err := all.Identify(r)
		if who.Method != c.method || (err == nil) != (c.reason == "") {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
		if err != nil {
			refusedWith(t, err, farm.CodeUnauthenticated, c.reason)
		}
		if who, err := none.Identify(r); farm.CodeOf(err) != farm.CodeUnauthenticated || who.Method != "" {
			t.Errorf("%s where nothing is on: %+v, %v", name, who, err)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	r.Header["Authorization"] = []string{rootBasic, rootBasic}
	if _, err := all.Identify(r); !errors.Is(err, errTwoHeaders) {
		t.Error(err)
	}
	r.Header["Authorization"] = []string{"Bearer a.b.down"}
	if _, err := all.Identify(r); farm.CodeOf(err) != farm.CodeUnavailable {
		t.Errorf("a provider that is down is the caller's fault: %v", err)
	}
}

// TestStill: a running request stays admitted as long as the key of its session exists, with its
// current groups.
func TestStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(t, "ci", "old")
		a := complete(t, w)
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+bearer(t, w.session(t, "ci")))
		was, err := a.Identify(r)
		must(t, err)
		groups := []string{"new"}
		must(t, w.keys.Update(t.Context(), "ci", APIKeyChange{Groups: &groups}))
		for _, wait := range []time.Duration{0, DefaultSessionTTL + time.Second} {
			time.Sleep(wait)
			if who, err := a.Revalidate(r, was); err != nil || who.Name != "ci" || who.Method != ByKey ||
				!slices.Equal(who.Groups, groups) {
				t.Errorf("after %s: %+v, %v", wait, who, err)
			}
		}
		must(t, w.keys.Delete(t.Context(), "ci"))
		who, err := a.Revalidate(r, was)
		refusedAs(t, err, errSessionKey)
		if who.Method != "" {
			t.Errorf("of a deleted key: %+v", who)
		}
	})
}

// TestStillOfAKeyThatEnds: a request does not outlive the key that it was admitted with.
func TestStillOfAKeyThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(t, "ci")
		a := complete(t, w)
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+bearer(t, w.session(t, "ci")))
		was, err := a.Identify(r)
		must(t, err)
		time.Sleep(time.Hour)
		_, err = a.Revalidate(r, was)
		refusedAs(t, err, errSessionKey)
		r.Header.Set("Authorization", "Basic x")
		_, err = a.Revalidate(r, was)
		refusedAs(t, err, errBasicForm)
	})
}
