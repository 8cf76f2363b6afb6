package rest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// TestOnBehalf: a call for a user is allowed when it is to the user and to the program.
func TestOnBehalf(t *testing.T) {
	local := newGate(t, func(o *GuardOptions) { o.Identifier = Loopback{} })
	g := newGate(t)
	for _, c := range []struct {
		name    string
		gate    *gate
		as      string // the header Authorization
		pattern string
		header  []string
		want    int
	}{
		{"root", g, rootBasic(rootToken), "DELETE /node", nil, 200},
		{
			"root for a group that may", g, rootBasic(rootToken), "GET /vm",
			[]string{UserHeader, "anna", GroupHeader, "a", GroupHeader, "dev"},
			200,
		},
		{"root for a user without groups", g, rootBasic(rootToken), "GET /vm", []string{UserHeader, "anna"}, 403},
		{
			"root for who may something else", g, rootBasic(rootToken), "DELETE /node",
			[]string{UserHeader, "anna", GroupHeader, "dev"},
			403,
		},
		{
			"what is root's own", g, rootBasic(rootToken), "POST /key",
			[]string{UserHeader, "anna", GroupHeader, "dev"},
			403,
		},
		{"a key for who may more", g, g.key(t), "DELETE /node", []string{UserHeader, "anna", GroupHeader, "ops"}, 403},
		{"a key for who may less", g, g.key(t), "GET /vm", []string{UserHeader, "anna"}, 403},
		{"nobody", g, "", "GET /vm", []string{UserHeader, "anna", GroupHeader, "dev"}, 401},
		{"for root", g, rootBasic(rootToken), "GET /known", []string{UserHeader, "root"}, 401},
		{"for a name that was lost", g, rootBasic(rootToken), "GET /known", []string{UserHeader, ""}, 401},
		{"for groups", g, rootBasic(rootToken), "GET /known", []string{GroupHeader, "dev"}, 401},
		{"for two", g, rootBasic(rootToken), "GET /known", []string{UserHeader, "a", UserHeader, "b"}, 401},
		{"a program of this machine", local, "", "DELETE /node", nil, 200},
		{"a program for a user", local, "", "DELETE /node", []string{UserHeader, "anna", GroupHeader, "dev"}, 403},
		{"a program for who may", local, "", "GET /vm", []string{UserHeader, "anna", GroupHeader, "dev"}, 200},
	} {
		method, path, _ := strings.Cut(c.pattern, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		r.RemoteAddr, r.Host = "127.0.0.1:5", "127.0.0.1:8085"
		if c.as != "" {
			r.Header.Set("Authorization", c.as)
		}
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Add(c.header[i], c.header[i+1])
		}
		w := httptest.NewRecorder()
		c.gate.handler.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
	}
	if who := g.records[0].CredentialName; who != "root" {
		t.Errorf("%q", who)
	}
	if who := g.records[len(g.records)-1].CredentialName; who != "" {
		t.Errorf("%q", who)
	}
	for _, want := range []AuditRecord{
		{CredentialName: "root", ForUser: "anna", Method: auth.ByRoot},
		{CredentialName: "ci", ForUser: "anna", Method: auth.ByKey, KeyID: "ci"},
	} {
		if !slices.ContainsFunc(g.records, func(a AuditRecord) bool {
			return a.CredentialName == want.CredentialName && a.ForUser == want.ForUser && a.Method == want.Method &&
				a.KeyID == want.KeyID
		}) {
			t.Errorf("the audit has no record of %s for %s", want.CredentialName, want.ForUser)
		}
	}
	if text := g.log.String(); !strings.Contains(text, "who=ci method=key key=ci") ||
		!strings.Contains(text, "for_user=anna") {
		t.Error(text)
	}
}

// fixed is a caller that is always the same.
type fixed auth.Identity

func (f fixed) Identify(*http.Request) (auth.Identity, error) { return auth.Identity(f), nil }
func (f fixed) Revalidate(*http.Request, auth.Identity) (auth.Identity, error) {
	return auth.Identity(f), nil
}
func (f fixed) Schemes() []string { return nil }

// TestNamesThatCallersGive: a caller that acts for a user is counted and recorded by its own credential. Only
// the root user and local programs of a service, which may do everything, are counted by the users that they
// name.
func TestNamesThatCallersGive(t *testing.T) {
	for name, c := range map[string]struct {
		who     auth.Identity
		counted string // without and with a named user
		named   string
		actor   farm.Actor // with a named user
	}{
		"a key": {
			auth.Identity{Name: "ci", KeyID: "ci", Groups: []string{"dev"}, Method: auth.ByKey},
			"key ci", "key ci",
			farm.Actor{User: "ci", KeyID: "ci", ForUser: "anna"},
		},
		"a certificate": {
			auth.Identity{Name: "build-1", Method: auth.ByCertificate},
			"user build-1", "user build-1",
			farm.Actor{User: "build-1", ForUser: "anna"},
		},
		"a user of the identity provider": {
			auth.Identity{Name: "ben", Method: auth.ByOIDC},
			"user ben", "user ben",
			farm.Actor{User: "ben", ForUser: "anna"},
		},
		"a user who names themselves": {
			auth.Identity{Name: "anna", Method: auth.ByOIDC}, "user anna", "user anna", farm.Actor{User: "anna"},
		},
		"a node": {
			auth.Identity{Name: "node-1", Method: auth.ByNode},
			"node node-1", "node node-1",
			farm.Actor{User: "node-1"},
		},
		"a node of a key": {
			auth.Identity{Name: "node-2", KeyID: "nodes", Method: auth.ByNode},
			"node node-2", "node node-2",
			farm.Actor{User: "node-2", KeyID: "nodes"},
		},
		"root": {
			auth.Identity{Name: "root", Method: auth.ByRoot, Root: true},
			"user root", "for anna",
			farm.Actor{User: "root", ForUser: "anna"},
		},
		"a program beside the service": {
			auth.Identity{Method: auth.ByLocal}, "address 192.0.2.7", "for anna", farm.Actor{ForUser: "anna"},
		},
	} {
		g := newGate(t, func(o *GuardOptions) { o.Identifier = fixed(c.who) })
		var counted string
		var actor farm.Actor
		g.handler = g.guard.Handler(
			[]Route{{Pattern: "POST /x", Permission: AnyCredential, Handle: func(r *Request) (any, error) {
				counted, actor = CallerName(r.Request), ActorOf(r.Context())
				return nil, nil
			}}}, slog.New(slog.DiscardHandler))
		if a := g.ask("POST", "/x"); a.Code != 200 || counted != c.counted {
			t.Errorf("%s: %d, counted as %q", name, a.Code, counted)
		}
		if a := g.ask("POST", "/x", UserHeader, "anna"); a.Code != 200 || counted != c.named {
			t.Errorf("%s for anna: %d, counted as %q", name, a.Code, counted)
		}
		if actor.Address, actor.RequestID = "", ""; actor != c.actor {
			t.Errorf("%s for anna: %+v", name, actor)
		}
	}
}

// TestActFor: an outgoing request names its caller and no other user.
func TestActFor(t *testing.T) {
	for name, c := range map[string]struct {
		who    *auth.Identity // nil: without a guard
		behind *auth.Identity
		want   string
	}{
		"no guard": {nil, nil, "[] []"},
		"nobody":   {&auth.Identity{}, nil, "[] []"},
		"root":     {&auth.Identity{Name: "root", Method: auth.ByRoot, Root: true}, nil, "[] []"},
		"root for a user": {
			&auth.Identity{Name: "root", Method: auth.ByRoot, Root: true},
			&auth.Identity{Name: "ann", Groups: []string{"g"}, Method: auth.ByLocal}, "[ann] [g]",
		},
		"a key": {
			&auth.Identity{Name: "ci", KeyID: "ci", Groups: []string{"a", "b"}, Method: auth.ByKey},
			nil, "[ci] [a b]",
		},
		"a key for a user": {
			&auth.Identity{Name: "ci", KeyID: "ci", Groups: []string{"a", "b"}, Method: auth.ByKey},
			&auth.Identity{Name: "ann", Method: auth.ByLocal}, "[ci] [a b]",
		},
	} {
		ctx := t.Context()
		if c.who != nil {
			ctx = context.WithValue(ctx, auditKey{}, &requestAudit{Caller: Caller{Identity: *c.who, ActsFor: c.behind}})
		}
		r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		r.Header.Set(UserHeader, "somebody")
		r.Header.Set(GroupHeader, "else")
		SetForwardedUser(r)
		if got := fmt.Sprint(r.Header[UserHeader], r.Header[GroupHeader]); got != c.want ||
			r.Header.Get(ViaHeader) != "controller" {
			t.Errorf("%s: %s via %q", name, got, r.Header.Get(ViaHeader))
		}
	}
}
