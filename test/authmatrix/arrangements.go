package main

import (
	"context"
	"slices"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// arrangement is one way to set the services up, and what is asked there.
type arrangement struct {
	name     string
	split    bool
	tls      bool
	sides    map[string]serviceAuth
	settings map[string]string
	columns  []column
	local    []column                                       // at the registry's port for programs of its machine
	queue    []column                                       // at the interface for nodes
	ready    func(ctx context.Context, s *deployment) error // before the first cell
	cases    []probe
}

// whole is a side with everything on.
var whole = serviceAuth{auth: true, keys: true, permissions: true, managed: false, vouched: true}

func alike(d serviceAuth) map[string]serviceAuth {
	return map[string]serviceAuth{controller: d, registry: d}
}

// arrangements are all of them. What cases do comes behind the cells.
var arrangements = []arrangement{
	{
		name: "everything on", tls: true, sides: alike(whole),
		columns: slices.Concat(nobodies, roots, []column{browser}, keys, broken, certificates, nodes, vouchers,
			restricted),
		local: local, queue: slices.Concat(nobodies[:1], roots[:1], nodes[:3]), cases: handshakes,
	},
	{
		name: "permissions off", sides: alike(serviceAuth{auth: true, keys: true}),
		columns: slices.Concat(nobodies[:1], roots[:1], keys, nodes), local: local[:1],
	},
	{
		name:    "rights on single resources",
		sides:   alike(serviceAuth{auth: true, keys: true, permissions: true, managed: true}),
		columns: slices.Concat(nobodies[:1], roots[:1], keys[:1]), cases: resourceCases,
	},
	{
		name: "apart", split: true, sides: alike(serviceAuth{auth: true, keys: true, permissions: true}),
		columns: slices.Concat(nobodies[:1], roots, keys, nodes, restricted), local: local,
		cases: []probe{{"the minimum set", quiet(minimumSet)}},
	},
	{
		name: "the controller alone", split: true,
		sides:   map[string]serviceAuth{controller: {auth: true, keys: true, permissions: true}, registry: {}},
		columns: slices.Concat(nobodies[:2], roots[:1], nodes[:2]),
	},
	{
		name: "the registry alone", split: true,
		sides:   map[string]serviceAuth{controller: {}, registry: {auth: true, keys: true, permissions: true}},
		columns: slices.Concat(nobodies[:2], roots[:1], nodes[:2]), local: local[:1],
	},
	{
		name: "keys at the controller alone", split: true,
		sides: map[string]serviceAuth{
			controller: {auth: true, keys: true, permissions: true}, registry: {auth: true, permissions: true},
		},
		columns: slices.Concat(nobodies[:1], roots[:1], nodes),
	},
	{
		name: "keys at the registry alone", split: true,
		sides: map[string]serviceAuth{
			controller: {auth: true, permissions: true}, registry: {auth: true, keys: true, permissions: true},
		},
		columns: slices.Concat(nobodies[:1], roots[:1], nodes),
	},
	{
		name: "sessions of a second", sides: alike(serviceAuth{auth: true, keys: true, permissions: true}),
		settings: map[string]string{"SVC_API_KEYS_SESSION_TTL": "1s"},
		columns:  []column{expired}, ready: func(ctx context.Context, s *deployment) error {
			for _, service := range []string{controller, registry} {
				if _, err := s.bearer(ctx, service, "every"); err != nil {
					return err
				}
			}
			rig.Pause(ctx, 2500*time.Millisecond) // times in sessions are whole seconds
			return ctx.Err()
		},
	},
	{
		name: "authentication off", sides: alike(serviceAuth{}), columns: slices.Concat(nobodies[:1], nodes[:2]),
	},
}

// expired is a session that has expired.
var expired = column{name: "an expired session", of: func(ctx context.Context, s *deployment, r row) (caller, error) {
	value, err := s.bearer(ctx, r.service, "every")
	return caller{by: s.plain, header: []string{"Authorization", value}}, err
}}
