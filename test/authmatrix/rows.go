package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/oidc"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/authrest"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

// row is one route of a service, or a path without one.
type row struct {
	service      string
	pattern      string // as the mux has it
	needs        string
	also         string // permission of the caller at the registry, which the controller checks
	method, path string
	body         string // of a request that changes nothing
	when         feature
	wants        int // the status for authorized callers: 404 or 405 without a route; 0 anything else
}

// feature is what has to be on for a route to exist.
type feature string

// The features.
const (
	always  feature = ""
	guarded feature = "authentication"
	keyed   feature = "API keys"
	managed feature = "rights on single resources"
	vouched feature = "an identity provider"
)

// features in the order in which routes are searched: a route that exists without a feature does
// not need it.
var features = []feature{managed, vouched, keyed}

// authRoutes returns the routes of authentication of a service without one feature.
func authRoutes(service farm.Service, without feature) (patterns []string) {
	o := authrest.Options{
		Service: service, Grants: &auth.GrantTable{}, LoginCookies: &auth.LoginCookies{}, RootToken: &auth.RootToken{},
		ResourcesManaged: true,
		Provider:         &oidc.Provider{}, Keys: &auth.APIKeys{}, Handshake: &auth.TAP{},
	}
	switch without {
	case managed:
		o.ResourcesManaged = false
	case vouched:
		o.Provider = nil
	case keyed:
		o.Keys, o.Handshake = nil, nil
	}
	return patternsOf(authrest.Routes(o))
}

func patternsOf(routes []rest.Route) (list []string) {
	for _, r := range routes {
		list = append(list, r.Pattern)
	}
	return list
}

// allRows returns the rows of both services: every route that they have. One that is not in the
// tables here is an error, and so is a line of the tables that is not a route.
func allRows() (rows []row, err error) {
	for service, own := range map[string][]string{
		controller: patternsOf(controllerrest.Routes()), registry: patternsOf(registryrest.Routes(nil)),
	} {
		table, err := needs(service)
		if err != nil {
			return nil, err
		}
		add := func(pattern string, when feature) {
			r := newRow(service, pattern, table[pattern])
			r.when = when
			rows = append(rows, r)
			delete(table, pattern)
		}
		for _, pattern := range own {
			if table[pattern] == "" {
				return nil, fmt.Errorf("the %s has %s, of which the tables know nothing", service, pattern)
			}
			add(pattern, always)
		}
		discovery := patternsOf(authrest.DiscoveryRoutes())
		for _, pattern := range authRoutes(farm.Service(service), always) {
			if table[pattern] == "" {
				return nil, fmt.Errorf("the %s has %s, of which the tables know nothing", service, pattern)
			}
			when := guarded
			if slices.Contains(discovery, pattern) {
				when = always
			}
			for _, f := range features {
				if when == guarded && !slices.Contains(authRoutes(farm.Service(service), f), pattern) {
					when = f
				}
			}
			add(pattern, when)
		}
		for pattern := range table {
			return nil, fmt.Errorf("the tables have %s of the %s, which has no such route", pattern, service)
		}
		rows = append(rows,
			row{
				service: service, pattern: "an unknown path", needs: anybody, method: "GET", path: "/no/such/route",
				wants: 404,
			},
			row{
				service: service, pattern: "an unclean path", needs: anybody, method: "GET", path: "/api//v1/../v1/vm",
				wants: 404,
			},
			row{
				service: service, pattern: "a wrong method", needs: anybody, method: "PATCH", path: "/readyz",
				wants: 405,
			},
			row{service: service, pattern: "OPTIONS", needs: anybody, method: "OPTIONS", path: "/livez", wants: 405})
	}
	slices.SortStableFunc(rows, func(a, b row) int { return strings.Compare(a.service, b.service) })
	return rows, nil
}

// What a path or a body names of templates: what there is for registry tokens, nothing that exists for others.
const (
	theTemplate = "TEMPLATE"
	theLayer    = "LAYER"
)

// undecodable is a body that every handler refuses, and no guard looks at.
const undecodable = `{"`

// newRow makes the request of a route: its names stand for nothing that exists.
func newRow(service, pattern, needs string) row {
	method, path, _ := strings.Cut(pattern, " ")
	path = strings.NewReplacer("{path...}", "matrix/none.txt", "{name}", "buildnode-linux-none.tar.gz", "{session}",
		"11111111-2222-4333-8444-555555555555",
		"{file}", "none", "{root}", theLayer, "{groupName}", "nobody-is-in-it", "{$}", "").Replace(path)
	needs, also, _ := strings.Cut(needs, "+")
	r := row{service: service, pattern: pattern, needs: needs, also: also, method: method, path: path}
	if method != "GET" {
		r.body = undecodable
	}
	if pattern == "GET /api/v1/stats/usage" { // what it lists may need one more permission
		r.path += "?by=none"
	}
	if pattern == "GET /registry/v2/pull" {
		r.path += "?id=" + theTemplate
	}
	if pattern == "PUT /registry/v2/pull/trace" {
		r.body = `{"id":"` + theTemplate + `","content_id":"none","files":{}}`
	}
	if strings.HasPrefix(path, "/queue/v1/") {
		r.body = `{"protocol":1,"node_id":"NODE","boot_id":"b","name":"matrix","host":"127.0.0.1","seq":1,"statuses":[],"has_held":true}`
	}
	return r
}
