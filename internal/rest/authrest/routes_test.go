package authrest_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/authrest"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

var services = []farm.Service{farm.ServiceController, farm.ServiceRegistry}

// each runs a test against a site of each service.
func each(t *testing.T, test func(t *testing.T, s *site)) {
	for _, service := range services {
		t.Run(string(service), func(t *testing.T) { test(t, newSite(t, service)) })
	}
}

// TestTable compares the table of routes with the open routes and with those that exist.
func TestTable(t *testing.T) {
	for _, service := range services {
		s := newSite(t, service)
		open, seen := []string{}, map[string]bool{}
		for _, r := range authrest.Routes(s.options) {
			listed := slices.ContainsFunc(farm.AllPermissions(service),
				func(p farm.PermissionInfo) bool { return string(p.Name) == r.Permission })
			switch {
			case r.Permission == rest.NoCredential:
				open = append(open, r.Pattern)
			case !listed && r.Permission != rest.AnyCredential && r.Permission != string(farm.PermRoot):
				t.Errorf("%s needs %q, which there is not", r.Pattern, r.Permission)
			}
			if seen[r.Pattern] || (r.Handle == nil) == (r.HandleRaw == nil) {
				t.Errorf("route %s", r.Pattern)
			}
			seen[r.Pattern] = true
		}
		slices.Sort(open)
		if want := []string{
			"GET /config/v1/auth", "GET /login", "GET /login/oidc", "GET /oidc/v1/callback", "POST /login",
			"POST /tap/v1/hand", "POST /tap/v1/shake",
		}; !slices.Equal(open, want) {
			t.Errorf("open are %q; want %q", open, want)
		}
	}
	sets := map[string][]string{}
	for _, r := range slices.Concat(controllerrest.Routes(), registryrest.Routes(nil)) {
		sets[r.Permission] = append(sets[r.Permission], r.Pattern)
	}
	for kind, want := range map[string]string{
		rest.NoCredential: "[GET /livez GET /readyz GET /livez GET /readyz]",
		rest.NodeOnly: "[POST /queue/v1/poll POST /queue/v1/report POST /queue/v1/pass POST /queue/v1/peers " +
			"POST /queue/v1/cloud " +
			"GET /queue/v1/console POST /queue/v1/disjoin POST /queue/v1/scan]",
		rest.NodeOrCaller: "[POST /queue/v1/join GET /pkg/manifest GET /pkg/{name}]",
		rest.AnyCredential: "[GET /api/v1/status GET /api/v1/rights GET /api/v1/search GET /api/v1/filter/complete " +
			"GET /api/v1/openapi.yaml GET " +
			"/api/v1/openapi.json " +
			"GET " +
			"/api " +
			"GET /registry/openapi.yaml GET /registry/openapi.json GET /registry/api GET /registry/v2/rights]",
	} {
		if got := fmt.Sprint(sets[kind]); got != want {
			t.Errorf("%s: %s; want %s", kind, got, want)
		}
	}
	// Disabled features have no routes.
	bare := authrest.Routes(authrest.Options{Service: farm.ServiceController, Grants: auth.NewGrantTable(auth.Grants{},
		nil)})
	for _, r := range bare {
		if strings.Contains(r.Pattern, "resources") || strings.Contains(r.Pattern, "key") ||
			strings.Contains(r.Pattern, "tap") || strings.Contains(r.Pattern, "log") {
			t.Errorf("%s is served", r.Pattern)
		}
	}
}

func TestHandshake(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		c := s.client(t)
		key := s.makeKey(t, c, "ci", "dev")
		s.grant(t, "dev", "list_vms")
		get := func(bearer string) answer { return s.do(t, c, "GET /vm", "", "Authorization", bearer) }
		if a := get(s.session(t, c, "ci", key)); a.code != 200 || !strings.Contains(a.text, `"ci"`) {
			t.Errorf("%d %s", a.code, a.text)
		}
		one, two := s.hand(t, c, "ci", key), s.hand(t, c, "ci", key) // several may be open
		if len(one) != 27 ||
			strings.Trim(one, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Errorf("the secret is %q", one)
		}
		shake := func(secret string) answer {
			return s.do(t, c, "POST /tap/v1/shake", `{"id":"ci","secret":"`+secret+`"}`+"\n", "Content-Type",
				"application/x-www-form-urlencoded")
		}
		first := shake(two)
		if first.code != 200 || first.header.Get("Content-Type") != "application/json" ||
			first.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%+v", first)
		}
		for name, secret := range map[string]string{"used": two, "cut": one[:26], "longer": one +
			"A", "wrong": strings.Repeat("A", 27), "of the other alphabet": "+/" + one[2:]} {
			if a := shake(secret); a.code != 401 || a.text != rest.AuthenticationRequired {
				t.Errorf("%s: %d %s", name, a.code, a.text)
			}
		}
		if a := shake(one); a.code != 200 {
			t.Errorf("the first of two: %d %s", a.code, a.text)
		}
		for body, code := range map[string]int{
			`{"id":"nobody"}`: 200, `{"id":"root"}`: 200, `{}`: 400, ``: 400, `[]`: 400, `{"id":7}`: 400,
			`{"id":"` + strings.Repeat("x", 1<<20) + `"}`: 413,
		} {
			if a := s.do(t, c, "POST /tap/v1/hand", body); a.code != code {
				t.Errorf("%.40s: %d %s; want %d", body, a.code, a.text, code)
			}
		}
		if a := s.do(t, c, "POST /tap/v1/shake", `{"id":"ci"}`); a.code != 400 ||
			!strings.Contains(a.text, "secret: is required") {
			t.Errorf("%d %s", a.code, a.text)
		}
		if a := s.do(t, c, "GET /tap/v1/hand", ""); a.code != 401 {
			t.Errorf("another method: %d", a.code)
		}
		if n := strings.Count(s.logged(),
			"key=ci address=127.0.0.1 verb=POST route=\"POST /tap/v1/shake\" outcome=unauthenticated"); n != 5 {
			t.Errorf("%d refused shakes of the key are in the audit:\n%s", n, s.logged())
		}
	})
}

// TestBearerForms: clients write the session as they like.
func TestBearerForms(t *testing.T) {
	s := newSite(t, farm.ServiceController)
	c := s.client(t)
	s.makeKey(t, c, "ci>?", "dev") // the name yields characters of both base64 alphabets
	s.grant(t, "ci>?", "list_vms")
	k, err := s.keys.Get("ci>?")
	must(t, err)
	v := s.sessions.Issue(k)
	s.hush(v.Token)
	forms := map[string]string{
		"order and space": fmt.Sprintf("{ \"token\": %q,\n \"sessionId\": %q, \"userName\": %q }", v.Token, v.SessionID,
			v.UserName),
		"a line end": fmt.Sprintf("{\"userName\":%q,\"sessionId\":%q,\"token\":%q}\n", v.UserName, v.SessionID,
			v.Token),
		"more fields": fmt.Sprintf("{\"userName\":%q,\"sessionId\":%q,\"token\":%q,\"x\":null}", v.UserName,
			v.SessionID, v.Token),
	}
	for name, text := range forms {
		for coding, e := range map[string]*base64.Encoding{
			"standard": base64.StdEncoding, "URL": base64.URLEncoding,
			"raw": base64.RawURLEncoding, "raw standard": base64.RawStdEncoding,
		} {
			if a := s.do(t, c, "GET /vm", "", "Authorization",
				"Bearer "+e.EncodeToString([]byte(text))); a.code != 200 {
				t.Errorf("%s, %s: %d %s", name, coding, a.code, a.text)
			}
		}
	}
	good := base64.StdEncoding.EncodeToString([]byte(forms["a line end"]))
	foreign := strings.Replace(forms["a line end"], v.UserName, "other", 1)
	for name, value := range map[string]string{
		"cut": good[:len(good)-12], "half": good[:len(good)/2],
		"of another user": base64.StdEncoding.EncodeToString([]byte(foreign)),
		"no base64":       "{" + good, "a JWT of nobody": "eyJhbGciOiJub25lIn0.e30.",
		"long":  strings.Repeat("A", 20<<10),
		"empty": "",
	} {
		if a := s.do(t, c, "GET /vm", "", "Authorization", "Bearer "+value); a.code != 401 ||
			a.text != rest.AuthenticationRequired {
			t.Errorf("%s: %d %s", name, a.code, a.text)
		}
	}
}

func TestManySessions(t *testing.T) {
	s := newSite(t, farm.ServiceController)
	c := s.client(t)
	s.makeKey(t, c, "ci")
	s.grant(t, "ci", "list_vms")
	k, err := s.keys.Get("ci")
	must(t, err)
	sessions := make([]string, 2000)
	for i := range sessions {
		raw, err := json.Marshal(s.sessions.Issue(k))
		must(t, err)
		sessions[i] = "Bearer " + base64.StdEncoding.EncodeToString(raw)
	}
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := worker; i < len(sessions); i += 4 {
				if a := s.do(t, c, "GET /vm", "", "Authorization", sessions[i]); a.code != 200 {
					t.Errorf("session %d: %d", i, a.code)
					return
				}
			}
		})
	}
	wg.Wait()
	s.asRoot(t, c, "DELETE /api/v1/apikey?id=ci", "")
	for i := 0; i < len(sessions); i += 1000 {
		if a := s.do(t, c, "GET /vm", "", "Authorization", sessions[i]); a.code != 401 {
			t.Errorf("session %d outlives its key: %d", i, a.code)
		}
	}
}

// hostile are invalid credentials.
func (s *site) hostile() map[string][]string {
	return map[string][]string{
		"a megabyte":           {"Authorization", "Bearer " + strings.Repeat("A", 1<<20)},
		"a megabyte of cookie": {"Cookie", "x=" + strings.Repeat("A", 1<<20)},
		"60 KB":                {"Authorization", "Bearer " + strings.Repeat("A", 60<<10)},
		"60 KB of a JWT":       {"Authorization", "Bearer " + strings.Repeat("A.", 30<<10)},
		"60 KB of cookies":     {"Cookie", strings.Repeat("buildyard_session=x; ", 2800)},
		"the token alone":      {"Authorization", rootToken},
		"the token as Bearer":  {"Authorization", "Bearer " + rootToken},
		"another user": {"Authorization", "Basic " +
			base64.StdEncoding.EncodeToString([]byte("admin:"+rootToken))},
		"half the token":   {"Authorization", rootBasic(rootToken[:12])},
		"as a user":        {rest.UserHeader, "ci"},
		"as a certificate": {"Ssl-Client-Verify", "SUCCESS", "Ssl-Client-Cert", "x"},
	}
}

// TestHostile sends invalid values everywhere, with secrets in all the wrong fields.
func TestHostile(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		c := s.client(t)
		key := s.makeKey(t, c, "ci")
		secret := s.hand(t, c, "ci", key)
		routes := slices.Concat(authrest.Routes(s.options),
			[]rest.Route{{Pattern: "GET /vm"}, {Pattern: "POST /" + url.PathEscape(rootToken)}})
		for name, header := range s.hostile() {
			for _, r := range routes {
				if r.Permission == rest.NoCredential {
					continue
				}
				what := strings.ReplaceAll(r.Pattern, "{groupName}", secret) + "?token=" + url.QueryEscape(rootToken) +
					"&id=" + secret
				a := s.do(t, c, what, `{"id":"`+secret+`","token":"`+rootToken+`"}`, header...)
				large := strings.HasPrefix(name, "a megabyte")
				if large && a.code != 431 || !large && a.code != 401 && a.code != 429 {
					t.Errorf("%s, %s: %d %.100s", name, r.Pattern, a.code, a.text)
				}
			}
		}
		// Secrets in place of IDs and names, sent by an authenticated caller.
		for _, what := range []string{
			"POST /tap/v1/hand", "POST /tap/v1/shake", "POST /login", "DELETE /vm", "GET /config/v1/auth/" + secret,
			"GET /admin/api/v1/permission/group/" + secret, "POST /admin/v1/api/permission/group/" + secret,
			"GET /" + secret,
			"POST /admin/api/v1/permission/group/x/resources", "GET /oidc/v1/callback?code=" + secret + "&state=" +
				secret, "GET /login/oidc?return=" + secret,
		} {
			a := s.do(t, c, what, `{"id":"`+secret+`","secret":"`+secret+`","token":"`+secret+`","permissions":["`+
				secret+`"]}`, "Authorization", rootBasic(rootToken))
			if a.code >= 500 {
				t.Errorf("%s: %d %s", what, a.code, a.text)
			}
		}
	})
}

func publicKeyText(t testing.TB, key *rsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(t, err)
	return base64.StdEncoding.EncodeToString(der)
}

// largeKey is the largest accepted key. Making one takes seconds.
var largeKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 4096) })

// TestKeys: all verbs in all forms of parameters.
func TestKeys(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		c := s.client(t)
		path := map[farm.Service]string{
			farm.ServiceController: "/api/v1/apikey", farm.ServiceRegistry: "/v1/apikey",
		}[s.options.Service]
		own, err := largeKey()
		must(t, err)
		public := publicKeyText(t, own)
		list := func(query string) (keys []api.Key) {
			_, _, body := s.asRoot(t, c, "GET "+path+query, "").message(t)
			must(t, json.Unmarshal(body, &keys))
			return keys
		}
		if a := s.asRoot(t, c, "GET "+path, ""); !strings.Contains(a.text, `"body":[]`) {
			t.Errorf("no keys: %s", a.text)
		}
		for _, f := range []struct{ query, body string }{
			{"", `{"id":"json","ttl":60,"groups":["a","b,c"]}`},
			{"", `{"id":"own","ttl":"60","groups":[],"publicKey":"` + public + `"}`},
			{"?id=query&ttl=60&groups=a&groups=b", ""},
			{"?id=commas&ttl=60&groups=a,b&publicKey=" + public, ""}, // not escaped
			{"?id=both&ttl=60", `{"groups":"a, b"}`},
		} {
			status, message, body := s.asRoot(t, c, "POST "+path+f.query, f.body).message(t)
			made := !strings.Contains(f.query+f.body, "publicKey")
			if status != "OK" || message != "" || made == (body == nil) {
				t.Errorf("%s %s: %s %s %s", f.query, f.body, status, message, body)
			}
			if made {
				s.hush(strings.Trim(string(body), `"`))
			}
		}
		groups := map[string][]string{}
		for _, k := range list("") {
			groups[k.ID] = k.Groups
			if left := time.Until(k.Expiration); left > time.Minute || left < 30*time.Second ||
				time.Since(k.Created) > time.Minute {
				t.Errorf("%+v", k)
			}
		}
		want := map[string][]string{
			"json": {"a", "b,c"}, "own": {}, "query": {"a", "b"}, "commas": {"a", "b"},
			"both": {"a", "b"},
		}
		if !maps.EqualFunc(groups, want, slices.Equal) {
			t.Errorf("%v", groups)
		}
		if one := list("?id=own"); len(one) != 1 || one[0].ID != "own" {
			t.Errorf("%v", one)
		}
		s.session(t, c, "own", own)

		for _, f := range []struct {
			what, body, status, message string
			code                        int
		}{
			{"GET ?id=nobody", "", "FAIL", "Not found", 200},
			{"POST ", `{"id":"own","ttl":60,"groups":[]}`, "FAIL", "API key own already exists", 200},
			{"POST ", `{"ttl":60,"groups":[]}`, "FAIL", "id: is required", 400},
			{"POST ", `{"id":"x","groups":[]}`, "FAIL", "ttl: is required", 400},
			{"POST ", `{"id":"x","ttl":0,"groups":[]}`, "FAIL", "ttl: must be an integer between 1 and", 400},
			{"POST ", `{"id":"x","ttl":1}`, "FAIL", "groups: is required", 400},
			{"POST ", `{"id":"x","ttl":1,"groups":[1]}`, "FAIL", "groups: must be", 400},
			{"POST ", `{"id":"Root","ttl":1,"groups":[]}`, "FAIL", "id: ", 400},
			{"POST ", `{"id":"x","ttl":1,"groups":[],"publicKey":"x"}`, "FAIL", "publicKey: ", 400},
			{"POST ", `{"id":`, "FAIL", "The request body is not a JSON object", 400},
			{"PUT ", `{"id":"own","groups":["z"],"ttl":7200}`, "OK", "", 200},
			{"PUT ", `{"id":"own","groups":["z"],"publicKey":"` + public + `"}`, "OK", "", 200},
			{"PUT ", `{"id":"json","groups":["z"],"publicKey":"` + public +
				`"}`, "FAIL", "publicKey: the public key of an API key cannot be changed", 400},
			{
				"PUT ", `{"id":"json","groups":["z"],"publicKey":"x"}`, "FAIL",
				"publicKey: the public key of an API key cannot be changed", 400,
			},
			{"PUT ?id=query&groups=y,z", "", "OK", "", 200},
			{"PUT ", `{"id":"nobody","groups":[]}`, "FAIL", "Not found", 200},
			{"PUT ", `{"groups":[]}`, "FAIL", "id: is required", 400},
			{"DELETE ", `{"id":"json"}`, "OK", "", 200},
			{"DELETE ?id=json", "", "FAIL", "Not found", 200},
			{"DELETE ?id=commas", "", "OK", "", 200},
			{"DELETE ", "", "FAIL", "id: is required", 400},
		} {
			method, query, _ := strings.Cut(f.what, " ")
			a := s.do(t, c, method+" "+path+query, f.body, "Authorization", rootBasic(rootToken))
			status, message, body := a.message(t)
			if a.code != f.code || status != f.status || !strings.HasPrefix(message, f.message) ||
				f.message == "" && message != "" || body != nil {
				t.Errorf("%s %s: %d %s", f.what, f.body, a.code, a.text)
			}
		}
		if k := list("?id=query"); !slices.Equal(k[0].Groups, []string{"y", "z"}) {
			t.Errorf("%v", k)
		}
		if k := list("?id=own"); time.Until(k[0].Expiration) < time.Hour {
			t.Errorf("%v", k)
		}
		// The registry accepts a change of only the lifetime.
		a := s.do(t, c, "PUT "+path, `{"id":"own","ttl":60}`, "Authorization", rootBasic(rootToken))
		if registry := s.options.Service == farm.ServiceRegistry; registry != (a.code == 200) ||
			!registry && !strings.Contains(a.text, "groups: is required") {
			t.Errorf("%d %s", a.code, a.text)
		}
		// Only the root user may use these routes, whatever permissions other callers were granted.
		all := []farm.Permission{}
		for _, p := range farm.AllPermissions(s.options.Service) {
			all = append(all, p.Name)
		}
		s.grant(t, "own", all...)
		if a := s.do(t, c, "GET "+path, "", "Authorization", s.session(t, c, "own", own)); a.code != 403 ||
			!strings.Contains(a.text, "Only the root user may do this") {
			t.Errorf("%d %s", a.code, a.text)
		}
	})
}

func TestPermissions(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		c := s.client(t)
		kind := string(farm.ResourceTypes(s.options.Service)[0])
		right := string(farm.ResourcePermissions(farm.ResourceType(kind))[0].Name)
		other := map[string]string{"node": "template", "template": "node"}[kind]
		for i, path := range []string{"/admin/api/v1/permission", "/admin/v1/api/permission"} {
			group := path + "/group/" + url.PathEscape(fmt.Sprintf("a/b %d", i))
			for _, f := range []struct{ what, body, want string }{
				{"GET " + path + "/group/nobody", "", `"Not found"`},
				{"GET " + path + "/group/nobody/resources", "", `"body":[]`},
				{"POST " + group, `{"permissions":["list_vms","list_vms"]}`, `{"status":"OK","message":"Saved"}`},
				{"GET " + group, "", fmt.Sprintf(`{"name":"a/b %d","permissions":["list_vms"]}`, i)},
				{"PUT " + group, `{"permissions":[]}`, `"message":"Saved"}`},
				{"GET " + group, "", `"permissions":[]}`},
				{"PUT " + group, `{}`, `"permissions: is required"`},
				{"PUT " + group, `{"permissions":["root"]}`, `permissions: unknown permission`},
				{"PUT " + path +
					"/group/root", `{"permissions":[]}`, `group: the permissions of root cannot be changed`},
				{"POST " + group + "/resources", `[{"id":"x","type":"` + kind + `","permissions":["` + right +
					`"]},{"id":"y","id_type":"id","type":"` + kind +
					`","permissions":[]}]`, `{"status":"OK","message":"Saved"}`},
				{"GET " + group +
					"/resources", "", `"body":[{"id":"x","id_type":"id","type":"` + kind + `","permissions":["` +
					right + `"]},{"id":"y","id_type":"id","type":"` + kind + `","permissions":[]}]`},
				{"POST " + group + "/resources", `[{"id":"z","type":"` + kind + `","permissions":["` + right +
					`"]}]`, `"message":"Saved"}`},
				{"GET " + group + "/resources", "", `"body":[{"id":"z"`},
				{"POST " + group + "/resources", `[{"id":"x","type":"` + other +
					`","permissions":[]}]`, `type: unknown resource type`},
				{"POST " + group + "/resources", `[{"id":"x","id_type":"name","type":"` + kind +
					`","permissions":[]}]`, `id_type: must be id`},
				{"POST " + group + "/resources", `[{"id":"x","type":"` + kind + `"}]`, `permissions: is required`},
				{"POST " + group + "/resources", `[{"type":"` + kind + `"}]`, `permissions: is required`},
				{"POST " + group + "/resources", `{}`, `is required`},
				{"POST " + group + "/resources", `[7]`, `not an array of JSON objects`},
				{"GET " + path + "/group", "", fmt.Sprintf(`"name":"a/b %d"`, i)},
				{"DELETE " + group, "", `"message":"Saved"}`},
				{"DELETE " + group, "", `"Not found"`},
				{"GET " + group + "/resources", "", `"body":[]`},
				{"GET " + path + "/group", "", `"body":[]`},
				{"GET " + path, "", `{"name":"view_prmission_groups"`},
				{"GET " + path + "/resources/permissions", "", `"body":[{"resource_type":"` + kind +
					`","permissions":{"`},
				{"GET " + path + "/resources/permissions", "", `"` + right + `":{"label":"`},
			} {
				a := s.do(t, c, f.what, f.body, "Authorization", rootBasic(rootToken))
				if !strings.Contains(a.text, f.want) {
					t.Errorf("%s %s: %d %s; want %s", f.what, f.body, a.code, a.text, f.want)
				}
			}
		}
		// A caller with the permissions for permission routes needs no others.
		key := s.makeKey(t, c, "admin")
		session := s.session(t, c, "admin", key)
		for what, p := range map[string]farm.Permission{
			"GET /admin/api/v1/permission":            "view_permissions",
			"GET /admin/v1/api/permission/group":      "view_prmission_groups",
			"PUT /admin/api/v1/permission/group/x":    "update_permission_groups",
			"DELETE /admin/api/v1/permission/group/x": "delete_permission_groups",
		} {
			s.grant(t, "admin")
			if a := s.do(t, c, what, `{"permissions":[]}`, "Authorization", session); a.code != 403 ||
				!strings.Contains(a.text, string(p)) {
				t.Errorf("%s: %d %s", what, a.code, a.text)
			}
			s.grant(t, "admin", p)
			if a := s.do(t, c, what, `{"permissions":[]}`, "Authorization", session); a.code != 200 {
				t.Errorf("%s: %d %s", what, a.code, a.text)
			}
		}
	})
}

func TestCertificates(t *testing.T) {
	s := newSite(t, farm.ServiceController)
	s.grant(t, "ops", "list_vms")
	for name, want := range map[string]int{"ops": 200, "dev": 403} {
		c := s.client(t, s.ca.Client(t, "anna", name).TLS())
		if a := s.do(t, c, "GET /vm", ""); a.code != want {
			t.Errorf("%s: %d %s", name, a.code, a.text)
		}
		if a := s.do(t, c, "GET /vm", "", "Authorization", "Bearer x"); a.code != 401 {
			t.Errorf("a wrong session is overlooked: %d", a.code)
		}
		if a := s.do(t, c, "GET /vm", "", "Authorization", rootBasic(rootToken)); a.code != 200 {
			t.Errorf("root: %d", a.code)
		}
	}
	if a := s.do(t, s.client(t), "GET /vm", ""); a.code != 401 {
		t.Errorf("no certificate: %d", a.code)
	}
}
