package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// caller is the caller of a cell: what is sent, and what may be expected of that.
type caller struct {
	by     *http.Client
	header []string
	node   string // id for the body of the node link

	known    bool     // the credential counts
	root     bool     // it is the root user's
	has      []string // permissions
	there    []string // permissions at the registry, of a caller of the controller
	fixed    bool     // has counts also where permissions do not
	linked   bool     // it is the credential of the node that the body names
	scope    *scope   // of a registry token; nil: it is none
	rebound  bool     // it asks a loopback address by a name of somewhere else, as DNS rebinding does
	guessing bool     // wrong root tokens are limited
}

// column is one kind of caller.
type column struct {
	name string
	only string // the service it is for; "" both
	of   func(ctx context.Context, s *deployment, r row) (caller, error)
}

// permission returns the permission that a row is about; "" where none would do.
func (r row) permission() string {
	switch {
	case r.needs == joining:
		return "change_node_config"
	case slices.Contains(printed[r.service], r.needs):
		return r.needs
	}
	return ""
}

// The groups of a row: without its permission, with it alone, with all others.
func without(row) string { return "nothing" }

func only(r row) string {
	switch {
	case r.permission() == "":
		return "every"
	case r.also != "":
		return "only-" + r.permission() + "+" + r.also
	}
	return "only-" + r.permission()
}

// halfOf is only, without what the registry asks for.
func halfOf(r row) string {
	if r.permission() == "" {
		return "every"
	}
	return "only-" + r.permission()
}

func allBut(r row) string {
	if r.permission() == "" {
		return "every"
	}
	return "but-" + r.permission()
}

// simple is a column whose callers send one header.
func simple(name string, c caller, header func(s *deployment, r row) []string) column {
	return column{name: name, of: func(_ context.Context, s *deployment, r row) (caller, error) {
		out := c
		if out.by = s.plain; c.guessing {
			out.by = s.guesser
		}
		if header != nil {
			out.header = header(s, r)
		}
		return out, nil
	}}
}

func authorization(value func(s *deployment, r row) string) func(*deployment, row) []string {
	return func(s *deployment, r row) []string { return []string{"Authorization", value(s, r)} }
}

// noBase64 is a Bearer value that is none.
const noBase64 = "Bearer !!!"

// nobodies are the columns of unauthenticated callers.
var nobodies = []column{
	simple("nobody", caller{}, nil),
	simple("a wrong root token", caller{guessing: true},
		authorization(func(s *deployment, _ row) string { return basic("root", s.root+"x") })),
	simple("the root token of another user", caller{guessing: true},
		authorization(func(s *deployment, _ row) string { return basic("admin", s.root) })),
	simple("no token", caller{guessing: true},
		authorization(func(*deployment, row) string { return basic("root", "") })),
	simple("no base64", caller{}, authorization(func(*deployment, row) string { return noBase64 })),
	simple("another scheme", caller{}, authorization(func(s *deployment, _ row) string { return "Token " + s.root })),
}

// roots are the columns of the root user.
var roots = []column{
	simple("root", caller{known: true, root: true},
		authorization(func(s *deployment, _ row) string { return basic("root", s.root) })),
	simple("root without a name", caller{known: true, root: true},
		authorization(func(s *deployment, _ row) string { return basic("", s.root) })),
}

// browser is a login.
var browser = column{name: "a browser of root", of: func(ctx context.Context, s *deployment, r row) (caller, error) {
	cookie, err := s.logIn(ctx, r.service)
	return caller{by: s.plain, header: []string{"Cookie", cookie}, known: true, root: true}, err
}}

// keys are the columns of API keys.
var keys = []column{
	keyColumn("a key without", without), keyColumn("a key with only", only), keyColumn("a key with all but", allBut),
	keyColumn("a key with only, of one service", halfOf),
}

func keyColumn(name string, group func(row) string) column {
	return column{name: name, of: func(ctx context.Context, s *deployment, r row) (caller, error) {
		value, err := s.bearer(ctx, r.service, group(r))
		list, there := granted(r, group(r))
		return caller{by: s.plain, header: []string{"Authorization", value}, known: true, has: list, there: there}, err
	}}
}

// broken are the columns of sessions that do not count.
var broken = []column{
	brokenColumn("a truncated session", func(text string) string { return text[:len(text)-2] }),
	brokenColumn("a token with a changed end",
		func(text string) string { return strings.TrimSuffix(text, `"}`) + `A"}` }),
	brokenColumn("the session of another id",
		func(text string) string { return strings.Replace(text, "key-every", "key-nothing", 1) }),
	brokenColumn("no JSON", func(text string) string { return strings.Trim(text, "{}") }),
}

func brokenColumn(name string, change func(text string) string) column {
	return column{name: name, of: func(ctx context.Context, s *deployment, r row) (caller, error) {
		value, err := s.bearer(ctx, r.service, "every")
		if err != nil {
			return caller{}, err
		}
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(value, "Bearer "))
		changed := change(string(raw))
		if changed == string(raw) {
			return caller{}, fmt.Errorf("%s is as it was", name)
		}
		return caller{by: s.plain, header: []string{"Authorization", "Bearer " +
			base64.StdEncoding.EncodeToString([]byte(changed))}}, err
	}}
}

// certificates are the columns of client certificates.
var certificates = []column{
	certColumn("a certificate without", without), certColumn("a certificate with only", only),
	certColumn("a certificate with all but", allBut),
	{name: "a certificate beside a wrong header", of: func(_ context.Context, s *deployment, _ row) (caller, error) {
		by, err := s.shows("every")
		return caller{by: by, header: []string{"Authorization", noBase64}}, err
	}},
}

func certColumn(name string, group func(row) string) column {
	return column{name: name, of: func(ctx context.Context, s *deployment, r row) (caller, error) {
		if err := s.ensureGroup(ctx, group(r)); err != nil {
			return caller{}, err
		}
		by, err := s.shows(group(r))
		list, there := granted(r, group(r))
		return caller{by: by, known: true, has: list, there: there}, err
	}}
}

// nodes are the columns of nodes.
var nodes = []column{
	{name: "an own node", of: ownNode},
	{name: "a foreign node", of: func(_ context.Context, s *deployment, _ row) (caller, error) {
		return caller{by: s.plain, header: []string{"Authorization", "Bearer " +
			strings.Repeat("0", len(s.node.credential))}, node: s.node.id}, nil
	}},
	{name: "another node's credential", of: func(_ context.Context, s *deployment, _ row) (caller, error) {
		return caller{by: s.plain, header: []string{"Authorization", "Bearer " +
			s.node.credential}, node: "11111111-2222-4333-8444-555555555555"}, nil
	}},
	tokenColumn("a node without an order", "", scope{asksAgain: true, orders: []order{rowsOrder}}),
	tokenColumn("a node that sends rows", `,"purpose":{"rows":true}`, scope{orders: []order{rowsOrder}}),
	tokenColumn("a node with an order for another template", `,"purpose":{"pull":"ORDERED"}`, scope{}),
	tokenColumn("a node with an order", `,"purpose":{"pull":"ORDERED"}`,
		scope{orders: []order{pullOrder}, right: true}),
	{
		name: "a truncated registry token", only: registry,
		of: func(ctx context.Context, s *deployment, _ row) (caller, error) {
			token, err := s.nodeToken(ctx, s.node, "")
			if err != nil {
				return caller{}, err
			}
			return caller{by: s.plain, header: []string{"Authorization", "Bearer " + token[:len(token)-1]}}, nil
		},
	},
}

// scope is what a registry token is good for.
type scope struct {
	orders    []order
	right     bool // requests name the template that it was ordered to hold, else another one
	asksAgain bool // it was made for an agent that requests another one when it receives 401
}

// tokenColumn is a node with the token that it gets for a purpose. One without an order is another
// node than the one that was ordered to cache a template.
func tokenColumn(name, purpose string, c scope) column {
	return column{name: name, only: registry, of: func(ctx context.Context, s *deployment, _ row) (caller, error) {
		if err := s.order(ctx); err != nil {
			return caller{}, err
		}
		member := s.ordered
		if purpose == "" {
			member = s.node
		}
		token, err := s.nodeToken(ctx, member, strings.ReplaceAll(purpose, "ORDERED", s.held.id))
		return caller{by: s.plain, header: []string{"Authorization", "Bearer " + token}, known: true, scope: &c}, err
	}}
}

// ownNode is a node of this cloud. One that is to leave it is a new one.
func ownNode(ctx context.Context, s *deployment, r row) (caller, error) {
	n := s.node
	if strings.HasSuffix(r.path, "/disjoin") {
		var err error
		if n, err = s.join(ctx, s.token, "leaving"); err != nil {
			return caller{}, err
		}
	}
	c := caller{by: s.plain, header: []string{"Authorization", "Bearer " + n.credential}, node: n.id, linked: true}
	if strings.HasPrefix(r.path, "/pkg/") {
		c.header[1] = basic(n.id, n.credential)
	}
	return c, nil
}

// vouchers are the columns of an identity provider.
var vouchers = []column{
	jwtColumn("a token of the provider, without", without), jwtColumn("a token of the provider, with only", only),
	{name: "a token of another issuer", of: func(_ context.Context, s *deployment, _ row) (c caller, err error) {
		err = s.stand.Do(func() {
			c = caller{by: s.plain, header: []string{"Authorization", "Bearer " +
				s.foreign.Sign(s.stand, claims("every"))}}
		})
		return c, err
	}},
	{name: "a token for another client", of: func(_ context.Context, s *deployment, _ row) (c caller, err error) {
		err = s.stand.Do(func() {
			other := claims("every")
			other["aud"] = []string{"someone-else"}
			c = caller{by: s.plain, header: []string{"Authorization", "Bearer " + s.idp.Sign(s.stand, other)}}
		})
		return c, err
	}},
}

func claims(group string) map[string]any {
	return map[string]any{"aud": []string{clientID}, "preferred_username": "vouched-" +
		group, "groups": []string{group}}
}

func jwtColumn(name string, group func(row) string) column {
	return column{name: name, of: func(ctx context.Context, s *deployment, r row) (c caller, err error) {
		if err := s.ensureGroup(ctx, group(r)); err != nil {
			return c, err
		}
		err = s.stand.Do(func() {
			list, there := granted(r, group(r))
			token := s.secrets.Note("token of the identity provider", s.idp.Sign(s.stand, claims(group(r))))
			c = caller{by: s.plain, header: []string{"Authorization", "Bearer " +
				token}, known: true, has: list, there: there}
		})
		return c, err
	}}
}

// The headers with which a program names the user on whose behalf it calls the registry.
const (
	userHeader  = "X-Buildyard-User"
	groupHeader = "X-Buildyard-Group"
)

// restricted are the columns of calls that the root user makes on behalf of another user.
var restricted = []column{
	forColumn("root for a user without", without), forColumn("root for a user with only", only),
}

func forColumn(name string, group func(row) string) column {
	return column{name: name, only: registry, of: func(ctx context.Context, s *deployment, r row) (caller, error) {
		err := s.ensureGroup(ctx, group(r))
		list, there := granted(r, group(r))
		return caller{by: s.plain, header: []string{"Authorization", basic("root",
			s.root), userHeader, "somebody", groupHeader, group(r)}, known: true, has: list, there: there}, err
	}}
}

// local are the columns of the registry's port for programs of the same machine.
var local = []column{
	simple("a program of this machine", caller{known: true, has: printed[registry], fixed: true}, nil),
	simple("by another name", caller{rebound: true},
		func(*deployment, row) []string { return []string{"Host", "registry.example"} }),
	simple("for a user without a name", caller{},
		func(*deployment, row) []string { return []string{groupHeader, "every"} }),
	localColumn("for a user without", without), localColumn("for a user with only", only),
	localColumn("for a user with all but", allBut),
}

func localColumn(name string, group func(row) string) column {
	return column{name: name, of: func(ctx context.Context, s *deployment, r row) (caller, error) {
		err := s.ensureGroup(ctx, group(r))
		list, there := granted(r, group(r))
		return caller{
			by: s.plain, header: []string{userHeader, "somebody", groupHeader, group(r)}, known: true,
			has: list, there: there,
		}, err
	}}
}
