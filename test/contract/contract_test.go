package main

import (
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/oidc"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/authrest"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

// muxes returns the routes of both services by their patterns, as the file has them.
func muxes() map[string]rest.Route {
	all := map[string]rest.Route{}
	routes := slices.Concat(controllerrest.Routes(), registryrest.Routes(nil))
	for _, service := range []farm.Service{farm.ServiceController, farm.ServiceRegistry} {
		routes = append(routes, authRoutes(service, everything)...)
	}
	for _, route := range routes {
		pattern := strings.NewReplacer("...}", "}", "/{$}", "/").Replace(route.Pattern)
		all[pattern] = route
	}
	return all
}

func theSpec(t *testing.T) *spec {
	t.Helper()
	s, err := loadSpec()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEveryRouteIsInTheFile compares the muxes with api/openapi.yaml.
func TestEveryRouteIsInTheFile(t *testing.T) {
	s, all := theSpec(t), muxes()
	for _, pattern := range slices.Sorted(maps.Keys(all)) {
		route, r := all[pattern], s.routes[pattern]
		switch {
		case r == nil:
			t.Errorf("%s is not in api/openapi.yaml", pattern)
		case r.permission != route.Permission:
			t.Errorf("%s needs %q, and the file says %q", pattern, route.Permission, r.permission)
		case r.typed != route.DecodesBody && route.Handle != nil:
			t.Errorf("%s: x-typed is %v in the file", pattern, r.typed)
		}
	}
	for pattern := range s.routes {
		if _, ok := all[pattern]; !ok {
			t.Errorf("%s is in api/openapi.yaml and nowhere served", pattern)
		}
	}
}

// everything is all that routes of authentication may need.
var everything = []string{"authentication", "API keys", "resource permissions", "identity provider"}

// authRoutes returns the routes of authentication of a service where some of that is on.
func authRoutes(service farm.Service, on []string) []rest.Route {
	o := authrest.Options{Service: service}
	for _, what := range on {
		switch what {
		case "authentication":
			o.Grants, o.LoginCookies, o.RootToken = &auth.GrantTable{}, &auth.LoginCookies{}, &auth.RootToken{}
		case "API keys":
			o.Keys, o.Handshake = &auth.APIKeys{}, &auth.TAP{}
		case "resource permissions":
			o.ResourcesManaged = true
		case "identity provider":
			o.Provider = &oidc.Provider{}
		}
	}
	return authrest.Routes(o)
}

// TestWhenRoutesAreThere: x-when of a route is what the route needs.
func TestWhenRoutesAreThere(t *testing.T) {
	s := theSpec(t)
	for _, service := range []farm.Service{farm.ServiceController, farm.ServiceRegistry} {
		for _, left := range everything[1:] {
			there := map[string]bool{}
			for _, route := range authRoutes(service,
				slices.DeleteFunc(slices.Clone(everything), func(what string) bool { return what == left })) {
				there[route.Pattern] = true
			}
			for _, route := range authRoutes(service, everything) {
				if when := s.routes[route.Pattern].when; there[route.Pattern] == (when == left) {
					t.Errorf("%s: %s is there without %s: %v, and x-when is %q", service, route.Pattern, left,
						there[route.Pattern], when)
				}
			}
		}
	}
	for _, route := range slices.Concat(controllerrest.Routes(), registryrest.Routes(nil)) {
		if r := s.routes[strings.NewReplacer("...}", "}", "/{$}", "/").Replace(route.Pattern)]; r.when != "" {
			t.Errorf("%s is always there, and x-when is %q", route.Pattern, r.when)
		}
	}
}

// TestOpenRoutes: the open routes of the file are the contract's list, and nothing else.
func TestOpenRoutes(t *testing.T) {
	var open []string
	for pattern, r := range theSpec(t).routes {
		free := r.op.Security != nil && len(*r.op.Security) == 0
		if free != (r.permission == rest.NoCredential) {
			t.Errorf("%s needs %q, and its security is %v", pattern, r.permission, r.op.Security)
		}
		if node := r.op.Security != nil && !free; node != strings.HasPrefix(r.permission, rest.NodeOnly) {
			t.Errorf("%s needs %q, and has a security of its own: %v", pattern, r.permission, node)
		}
		if free {
			open = append(open, pattern)
		}
	}
	slices.Sort(open)
	if got, want := strings.Join(open, ", "),
		"GET /config/v1/auth, GET /livez, GET /login, GET /login/oidc, GET /oidc/v1/callback, GET /readyz, "+
			"POST /login, "+
			"POST /tap/v1/hand, POST /tap/v1/shake"; got != want {
		t.Errorf("open are %s", got)
	}
}

// TestCasesAreReadable: the cases and rows of the suite can be read, and claims name rows.
func TestCasesAreReadable(t *testing.T) {
	rows, err := loadRows(true)
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := allJobs(theSpec(t), rows, true)
	if err != nil {
		t.Fatal(err)
	}
	claimed := map[string]bool{}
	for _, j := range jobs {
		for _, c := range j.rows {
			claimed[c] = true
		}
	}
	for _, r := range rows {
		for _, sign := range []string{"+", "-"} {
			if !claimed[sign+r.id] {
				t.Errorf("no case claims %s%s: %s", sign, r.id, r.gist)
			}
		}
	}
}

// TestReadingRules: the rules of the file for reading requests.
func TestReadingRules(t *testing.T) {
	r := theSpec(t).routes["POST /api/v1/vm"]
	for body, want := range map[string]string{
		`{"vmid":"x","count":"2","tag":null,"name":""}` + "\n": "",
		`{"vmid":"x","count":1001}`:                            "count",
		`{"count":1}`:                                          "vmid",
		`{"vmid":"x","port_forwarding_override":[{"name":"a","guest_port":"22"}]}`:  "",
		`{"vmid":"x","port_forwarding_override":[{"name":"a","guest_port":"22a"}]}`: "port_forwarding_override",
		`{"vmid":"x","disk":{"size":"60G","skip_container_resize":"true"}}`:         "",
		`[]`: "body",
	} {
		faults := strings.Join(r.read("/api/v1/vm", url.Values{}, nil, []byte(body)).faults, "; ")
		if (want == "") != (faults == "") || !strings.HasPrefix(faults, want) {
			t.Errorf("%s: %q, and %q was expected", body, faults, want)
		}
	}
	if faults := r.read("/api/v1/vm", url.Values{"vmid": {"x"}, "count": {"3"}}, nil, nil).faults; faults != nil {
		t.Errorf("parameters of the body in the query: %v", faults)
	}
}

// TestStrictAnswers: an answer with a field too many, a negative number or a null is a fault.
func TestStrictAnswers(t *testing.T) {
	r := theSpec(t).routes["GET /registry/disk"]
	for body, want := range map[string]bool{
		`{"status":"OK","message":"","body":{"free":1,"total":2}}`:         true,
		`{"status":"OK","message":"","body":{"free":-1,"total":2}}`:        false,
		`{"status":"OK","message":"","body":{"free":1,"total":2,"new":1}}`: false,
		`{"status":"OK","message":"","body":{"free":1,"total":null}}`:      false,
		`{"status":"OK","message":"all is well","body":{}}`:                false,
		`{"status":"ERROR","message":"x"}`:                                 false,
		`{"status":"FAIL","message":"Not found"}`:                          true,
	} {
		if faults := r.checkAnswer(200, "application/json", []byte(body)); (len(faults) == 0) != want {
			t.Errorf("%s: %v", body, faults)
		}
	}
}

// TestKinds: a field that was a number once and a string another time is found.
func TestKinds(t *testing.T) {
	var k jsonTypes
	k.note("GET /x", "one", map[string]any{"body": []any{map[string]any{"a": 1.0, "b": nil}}})
	k.note("GET /x", "two", map[string]any{"body": []any{map[string]any{"a": 2.0, "b": "x"}}})
	if faults := k.faults(); len(faults) != 0 {
		t.Error(faults)
	}
	k.note("GET /x", "three", map[string]any{"body": []any{map[string]any{"a": "2"}}})
	if faults := k.faults(); len(faults) != 1 || !strings.Contains(faults[0], "three") {
		t.Error(faults)
	}
}

// TestCoverage: coverage counts what was sent and how it was answered.
func TestCoverage(t *testing.T) {
	s, l := theSpec(t), newLedger()
	r := s.routes["DELETE /api/v1/vm"]
	send := func(body, answered string, code int) {
		a := &answer{
			code: code, header: map[string][]string{"Content-Type": {"application/json"}},
			body: []byte(answered),
		}
		if err := a.decode(); err != nil {
			t.Fatal(err)
		}
		l.take(exchange{route: r, answer: a, asked: r.read(r.path, nil, nil, []byte(body))})
	}
	met := func() bool { return l.met[r.pattern+" id"].whole() }
	send(`{"id":"x"}`, `{"status":"OK","message":""}`, 200)
	send(`{"id":"x"}`, `{"status":"FAIL","message":"it is late"}`, 200)
	if met() {
		t.Error("a refusal that does not name the parameter counts for it")
	}
	send(`{}`, `{"status":"FAIL","message":"id: is required"}`, 400)
	if !met() || !l.met[r.pattern].whole() {
		t.Error("a parameter that was missing and is named does not count")
	}
}

// known are the routes that clients of this API family know; all others are ours.
var known = strings.Fields(`
	/livez:GET /readyz:GET /api/v1/status:GET /api/v1/stats:GET /api/v1/vm:GET,POST,PUT,DELETE /api/v1/rpc/vm/restart:POST
	/api/v1/image:GET,POST /api/v1/node/update:PUT /api/v1/node:GET,DELETE /api/v1/node/config:POST /api/v1/node/group:POST,DELETE
	/api/v1/group:GET,POST,PUT,DELETE /api/v1/usb:GET /api/v1/vlan:GET /api/v1/macaddr:GET,PUT,DELETE
	/api/v1/registry/vm:GET,DELETE /api/v1/registry/revert:DELETE /api/v1/registry/vm/remove:DELETE
	/api/v1/registry/vm/distribute:GET,POST,DELETE /api/v1/registry/disk:GET
	/:GET /log:POST /registry/status:GET /registry/disk:GET /registry/vm:GET,DELETE /registry/v2/vm:GET /registry/vm/info:GET
	/registry/revert:DELETE /registry/vm/arch:PUT
	/config/v1/auth:GET /oidc/v1/callback:GET /tap/v1/hand:POST /tap/v1/shake:POST /api/v1/apikey:GET,POST,PUT,DELETE /v1/apikey:GET,POST,PUT,DELETE
	/admin/api/v1/permission/resources/permissions:GET /admin/api/v1/permission/group/{groupName}/resources:GET,POST
	/admin/v1/api/permission/resources/permissions:GET /admin/v1/api/permission/group/{groupName}/resources:GET,POST
`)

// TestAdditionsAreWrittenDown: every route that clients know is there, and docs/api-guide.md names
// every other one.
func TestAdditionsAreWrittenDown(t *testing.T) {
	raw, err := os.ReadFile("../../docs/api-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	s, theirs := theSpec(t), map[string]bool{}
	for _, line := range known {
		path, methods, _ := strings.Cut(line, ":")
		for method := range strings.SplitSeq(methods, ",") {
			pattern := method + " " + path
			if theirs[pattern] = true; s.routes[pattern] == nil {
				t.Errorf("%s is not in api/openapi.yaml", pattern)
			}
		}
	}
	for pattern, r := range s.routes {
		path, _, _ := strings.Cut(r.path, "{")
		if path = strings.TrimSuffix(path, "/"); !theirs[pattern] && !strings.Contains(string(raw), path) {
			t.Errorf("docs/api-guide.md says nothing of %s", pattern)
		}
	}
}

// TestAuthorizer: expectations of cases fit what they should, and nothing else.
func TestAuthorizer(t *testing.T) {
	object := map[string]any{"a": 1.0, "b": "text", "list": []any{"x"}}
	for want, fits := range map[string]bool{
		"a=!above 0": true, "a=!above 1": false, "b=!above 0": false, "list=!has x": true, "list=!has y": false,
		"b=!other else": true, "b=!other text": false, "a=!other 1": false, "c=!other x": false,
		"=!keys a b list": true, "=!keys a b": false,
		"b=!bytes 4 4": true, "b=!bytes 5 9": false, "a=!bytes 0 9": false, "c=!absent": true, "a=!absent": false,
		"list=!len 1": true,
		"list=!len 2": false, "list=!least 1": true, "b=~^te": true, "b=~^x": false, "a=!null": false, "b=text": true,
		"b=tex": false,
	} {
		path, value, _ := strings.Cut(want, "=")
		if fault := differs(object, map[string]any{path: value}); (fault == "") != fits {
			t.Errorf("%s: %q", want, fault)
		}
	}
}
