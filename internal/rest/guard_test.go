package rest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

const rootToken = "t0ken:of/root+"

// gate is a guarded service with a key "ci" of the group "dev", which may list instances.
type gate struct {
	guard    *Guard
	sessions *auth.Sessions
	logins   *auth.LoginCookies
	keys     *auth.APIKeys
	grants   *auth.GrantTable
	handler  http.Handler

	mu      sync.Mutex // guards the fields below
	log     bytes.Buffer
	records []AuditRecord
	ran     []string // patterns whose handlers ran
}

func (g *gate) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.Write(b)
}

func (g *gate) Audit(_ context.Context, a AuditRecord) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.records = append(g.records, a)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newGate(t testing.TB, change ...func(*GuardOptions)) *gate {
	t.Helper()
	g := &gate{keys: auth.NewAPIKeys(auth.NewKeyTable([]farm.APIKey{{
		ID: "ci", Groups: []string{"dev"}, Generation: "g", Expires: time.Now().Add(time.Hour),
	}}, nil))}
	signer := auth.NewSigner(auth.NewKeyRing(time.Now()))
	root, err := auth.NewRootToken(rootToken)
	must(t, err)
	g.sessions = auth.NewSessions(g.keys, signer, 0)
	g.logins = auth.NewLoginCookies(signer, root, "https://login.test", nil)
	grants, err := auth.Grants{}.SetGroup(farm.ServiceController, "dev", []farm.Permission{"list_vms"})
	must(t, err)
	grants, err = grants.SetGroupResources(farm.ServiceController, "dev",
		[]farm.ResourcePermission{{ID: "n1", Type: farm.ResourceNode, Permissions: []farm.Permission{"list"}}})
	must(t, err)
	g.grants = auth.NewGrantTable(grants, nil)
	log := slog.New(slog.NewTextHandler(g, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o := GuardOptions{
		Identifier: &auth.Authenticator{Root: root, Sessions: g.sessions, Logins: g.logins},
		Authorizer: auth.NewAuthorizer(auth.Policy{
			Service: farm.ServiceController, Tier: farm.TierEnterprisePlus, Authorization: true, Resources: true,
		}, g.grants),
		Auditor: g, Logger: log,
	}
	for _, c := range change {
		c(&o)
	}
	g.guard, err = NewGuard(o)
	must(t, err)
	g.handler = g.guard.Handler(g.routes(), log)
	return g
}

// routes has one route of each kind.
func (g *gate) routes() []Route {
	ran := func(r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.ran = append(g.ran, r.Pattern)
	}
	do := func(r *Request) (any, error) {
		ran(r.Request)
		return CallerOf(r.Context()).Name, nil
	}
	fails := func(code farm.Code) HandlerFunc {
		return func(r *Request) (any, error) {
			ran(r.Request)
			return nil, farm.Errorf(code, "No")
		}
	}
	return []Route{
		{Pattern: "GET /open", Permission: NoCredential, Handle: do},
		{Pattern: "POST /open", Permission: NoCredential, Handle: do},
		{Pattern: "GET /vm", Permission: "list_vms", Handle: do},
		{Pattern: "GET /vm/{id}", Permission: "list_vms", Handle: do},
		{Pattern: "POST /vm", Permission: "list_vms", Handle: do},
		{Pattern: "GET /known", Permission: AnyCredential, Handle: do},
		{Pattern: "DELETE /node", Permission: "delete_node", Handle: do},
		{Pattern: "POST /key", Permission: string(farm.PermRoot), Handle: do},
		{Pattern: "POST /join", Permission: NodeOnly, Handle: fails(farm.CodeUnauthenticated)},
		{Pattern: "POST /poll", Permission: NodeOnly, Frequent: true, Handle: do},
		{Pattern: "POST /report", Permission: NodeOnly, Frequent: true, Handle: fails(farm.CodeUnauthenticated)},
		{Pattern: "GET /pkg/{name}", Permission: NodeOrCaller, Handle: do},
		{Pattern: "GET /pkg/none", Permission: NodeOrCaller, Handle: fails(farm.CodeUnauthenticated)},
		{Pattern: "POST /row", Permission: "list_vms", Frequent: true, Handle: do},
		{Pattern: "POST /wrong", Permission: NoCredential, Handle: fails(farm.CodeInvalid)},
		{Pattern: "POST /tried", Permission: NoCredential, Frequent: true, Handle: func(r *Request) (any, error) {
			AuditIdentity(r.Request, auth.Identity{KeyID: "ci"})
			return nil, farm.Errorf(farm.CodeBusy, "No")
		}},
		{Pattern: "POST /refused", Permission: "list_vms", Handle: fails(farm.CodeRefused)},
		{Pattern: "POST /raw", Permission: "list_vms", HandleRaw: func(http.ResponseWriter, *http.Request) error {
			return farm.NotFound()
		}},
		{Pattern: "POST /panic", Permission: "list_vms", Handle: func(*Request) (any, error) { panic("x") }},
	}
}

// credentials of each kind.
func (g *gate) key(t testing.TB) string {
	t.Helper()
	k, err := g.keys.Get("ci")
	must(t, err)
	raw, err := json.Marshal(g.sessions.Issue(k))
	must(t, err)
	return "Bearer " + base64.StdEncoding.EncodeToString(raw)
}

func rootBasic(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+token))
}

// ask sends a request; header is names and values in turn, a name without a value is omitted.
func (g *gate) ask(method, path string, header ...string) answer {
	r := httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(""))
	r.RemoteAddr = "192.0.2.7:4711"
	for i := 0; i < len(header); i += 2 {
		if header[i+1] != "" {
			r.Header.Add(header[i], header[i+1])
		}
	}
	a := httptest.NewRecorder()
	g.handler.ServeHTTP(a, r)
	return answer{a, ""}
}

func (g *gate) audited() []AuditRecord {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer func() { g.records = nil }()
	return g.records
}

func TestGuard(t *testing.T) {
	g := newGate(t)
	cookie, err := g.logins.Issue(auth.Identity{Name: "otto", Groups: []string{"dev"}, Method: auth.ByOIDC})
	must(t, err)
	callers := []string{"none", "wrong", "key", "cookie", "root"}
	headers := map[string][]string{
		"none": nil, "wrong": {"Authorization", "Bearer x"}, "key": {"Authorization", g.key(t)},
		"cookie": {"Cookie", auth.LoginCookie + "=" + cookie}, "root": {"Authorization", rootBasic(rootToken)},
	}
	for _, c := range []struct {
		what string
		want [5]int // of the callers above
	}{
		{"GET /open", [5]int{200, 200, 200, 200, 200}},
		{"HEAD /open", [5]int{200, 200, 200, 200, 200}},
		{"PUT /open", [5]int{401, 401, 405, 405, 405}},
		{"OPTIONS /open", [5]int{401, 401, 405, 405, 405}},
		{"GET /vm", [5]int{401, 401, 200, 200, 200}},
		{"GET /vm/7", [5]int{401, 401, 200, 200, 200}},
		{"HEAD /vm", [5]int{401, 401, 200, 200, 200}},
		{"OPTIONS /vm", [5]int{401, 401, 405, 405, 405}},
		{"TRACE /vm", [5]int{401, 401, 405, 405, 405}},
		{"GET //vm", [5]int{401, 401, 404, 404, 404}},
		{"GET /vm/../open", [5]int{401, 401, 404, 404, 404}},
		{"GET /nothing", [5]int{401, 401, 404, 404, 404}},
		{"POST /vm", [5]int{401, 401, 200, 200, 200}},
		{"GET /known", [5]int{401, 401, 200, 200, 200}},
		{"DELETE /node", [5]int{401, 401, 403, 403, 200}},
		{"POST /key", [5]int{401, 401, 403, 403, 200}},
		{"POST /join", [5]int{401, 401, 401, 401, 401}},
		{"POST /poll", [5]int{200, 200, 200, 200, 200}},
		{"GET /pkg/x", [5]int{200, 200, 200, 200, 200}},
	} {
		for i, who := range callers {
			method, path, _ := strings.Cut(c.what, " ")
			g.ran = nil
			a := g.ask(method, path, headers[who]...)
			if a.Code != c.want[i] {
				t.Errorf("%s, %s: %d %s; want %d", c.what, who, a.Code, a.Body, c.want[i])
			}
			if ran := len(g.ran) > 0; ran != (a.Code == 200 || path == "/join") {
				t.Errorf("%s, %s: the handler ran: %v", c.what, who, g.ran)
			}
			if a.Code == 401 && (a.Body.String() != AuthenticationRequired || a.Header().Get("Allow") != "" ||
				a.Header().Get("WWW-Authenticate") == "") {
				t.Errorf("%s, %s: %s %v", c.what, who, a.Body, a.Header())
			}
			if a.Header().Get(RequestIDHeader) == "" {
				t.Errorf("%s, %s: no request id", c.what, who)
			}
		}
	}
	if a := g.ask("GET", "/pkg/x", headers["key"]...); !strings.Contains(a.Body.String(), `"ci"`) {
		t.Errorf("a known caller is not known to the packages: %s", a.Body)
	}
}

func TestForbiddenNamesThePermission(t *testing.T) {
	g := newGate(t)
	for path, want := range map[string]string{
		"DELETE /node": "You need the permission delete_node", "POST /key": "Only the root user may do this",
	} {
		method, path, _ := strings.Cut(path, " ")
		a := g.ask(method, path, "Authorization", g.key(t))
		if status, message, _ := a.envelope(t); status != "FAIL" || message != want {
			t.Errorf("%s %q", status, message)
		}
	}
	// Grants take effect for open sessions.
	session := g.key(t)
	must(t, g.grants.Change(t.Context(), func(gr auth.Grants) (auth.Grants, error) {
		return gr.SetGroup(farm.ServiceController, "ci", []farm.Permission{"delete_node"})
	}))
	if a := g.ask("DELETE", "/node", "Authorization", session); a.Code != 200 {
		t.Error(a.Code)
	}
	must(t, g.keys.Delete(t.Context(), "ci"))
	if a := g.ask("DELETE", "/node", "Authorization", session); a.Code != 401 {
		t.Error("a session outlives its key:", a.Code)
	}
}

func TestChallenges(t *testing.T) {
	g := newGate(t)
	const ofRoot, ofOthers = `Basic realm="buildyard", charset="UTF-8"`, `Bearer realm="buildyard"`
	for name, c := range map[string]struct {
		header []string
		want   []string
	}{
		"nothing": {nil, []string{ofRoot, ofOthers}},
		"a wrong session": {[]string{"Authorization", "bearer x"}, []string{ofRoot, ofOthers +
			`, error="invalid_token"`}},
		"a wrong root token": {[]string{"Authorization", rootBasic("wrong")}, []string{ofRoot, ofOthers}},
		"a script of a page": {[]string{"Sec-Fetch-Mode", "cors"}, []string{ofOthers}},
		"an unknown scheme":  {[]string{"Authorization", "Digest x"}, []string{ofRoot, ofOthers}},
		"two, of which right": {
			[]string{"Authorization", rootBasic(rootToken), "Authorization", rootBasic(rootToken)},
			[]string{ofRoot, ofOthers},
		},
	} {
		a := g.ask("GET", "/vm", c.header...)
		if got := a.Header().Values("WWW-Authenticate"); a.Code != 401 || !slices.Equal(got, c.want) {
			t.Errorf("%s: %d %q", name, a.Code, got)
		}
	}
}

func TestOtherSites(t *testing.T) {
	g := newGate(t, func(o *GuardOptions) { o.Sites.Hosts = []string{"portal.test"} })
	cookie, err := g.logins.Issue(auth.Identity{Name: "root", Method: auth.ByRoot, Root: true})
	must(t, err)
	kept := auth.LoginCookie + "=" + cookie
	for name, c := range map[string]struct {
		what   string
		header []string
		want   int
	}{
		"another origin":         {"POST /vm", []string{"Cookie", kept, "Origin", "https://evil.test"}, 403},
		"another site":           {"POST /vm", []string{"Cookie", kept, "Sec-Fetch-Site", "cross-site"}, 403},
		"a sister":               {"DELETE /node", []string{"Cookie", kept, "Sec-Fetch-Site", "same-site"}, 403},
		"the own page":           {"POST /vm", []string{"Cookie", kept, "Sec-Fetch-Site", "same-origin"}, 200},
		"the own page by http":   {"POST /vm", []string{"Cookie", kept, "Origin", "http://example.com"}, 200},
		"a page that is trusted": {"POST /vm", []string{"Cookie", kept, "Origin", "https://portal.test"}, 200},
		"no browser":             {"POST /vm", []string{"Cookie", kept}, 200},
		"Basic of a browser": {
			"POST /vm", []string{"Authorization", rootBasic(rootToken), "Origin", "https://evil.test"}, 403,
		},
		"a program's session": {
			"POST /vm",
			[]string{"Authorization", g.key(t), "Origin", "https://evil.test"},
			200,
		},
		"a log-in": {"POST /open", []string{"Origin", "https://evil.test"}, 403},
		"nobody":   {"POST /vm", []string{"Origin", "https://evil.test"}, 401},
		"a visit": {
			"GET /vm", []string{"Cookie", kept, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200,
		},
		"a script of another site": {"GET /vm", []string{
			"Authorization", rootBasic(rootToken), "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors",
		}, 403},
		"a stream for it": {"GET /vm", []string{"Cookie", kept, "Origin", "https://evil.test"}, 403},
		"a script of a sister": {
			"GET /vm", []string{"Cookie", kept, "Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}, 200,
		},
		"a WebSocket": {
			"GET /vm", []string{"Cookie", kept, "Upgrade", "websocket", "Origin", "https://evil.test"}, 403,
		},
		"a WebSocket of the page": {
			"GET /vm", []string{"Cookie", kept, "Upgrade", "websocket", "Origin", "http://example.com"}, 200,
		},
		"a WebSocket of a program": {"GET /vm", []string{"Authorization", g.key(t), "Upgrade", "websocket"}, 200},
	} {
		method, path, _ := strings.Cut(c.what, " ")
		if a := g.ask(method, path, c.header...); a.Code != c.want {
			t.Errorf("%s: %d %s", name, a.Code, a.Body)
		}
	}
	if _, err := NewGuard(GuardOptions{
		Identifier: Loopback{}, Sites: Sites{Hosts: []string{"https://portal"}},
	}); err == nil {
		t.Error("a host that is none is taken")
	}
}

func TestAudit(t *testing.T) {
	g := newGate(t)
	key, ofKey := g.key(t), AuditRecord{CredentialName: "ci", Method: auth.ByKey, KeyID: "ci"}
	ofRoot := AuditRecord{CredentialName: "root", Method: auth.ByRoot}
	for _, c := range []struct {
		what, credential string
		who              AuditRecord
		outcome, reason  string // "": it is not audited
	}{
		{"GET /vm", key, ofKey, "", ""},
		{"HEAD /vm", key, ofKey, "", ""},
		{"PUT /vm", key, ofKey, "", ""},
		{"POST /row", key, ofKey, "", ""},
		{"POST /poll", "", AuditRecord{}, "", ""},
		{"POST /vm", key, ofKey, "done", ""},
		{"POST /key", rootBasic(rootToken), ofRoot, "done", ""},
		{"POST /open", "", AuditRecord{}, "done", ""},
		{"POST /wrong", "", AuditRecord{}, "invalid", ""},
		{"POST /tried", "", AuditRecord{}, "", ""},
		{"POST /refused", key, ofKey, "refused", ""},
		{"POST /raw", key, ofKey, "not-found", ""},
		{"POST /panic", key, ofKey, "internal", ""},
		{"DELETE /node", key, ofKey, "forbidden", ""},
		{"GET /vm", "", AuditRecord{}, "unauthenticated", "the request has no credentials"},
		{"GET /vm", "Bearer x", AuditRecord{}, "unauthenticated", "the Bearer token is not a session token"},
		{"GET /nothing", "", AuditRecord{}, "unauthenticated", "the request has no credentials"},
		{"POST /join", "", AuditRecord{}, "unauthenticated", "No"},
		{"POST /report", "", AuditRecord{}, "unauthenticated", "No"},
	} {
		method, path, _ := strings.Cut(c.what, " ")
		g.log.Reset()
		a := g.ask(method, path, "Authorization", c.credential)
		got := g.audited()
		if c.outcome == "" {
			if len(got) != 0 || strings.Contains(g.log.String(), "audit") {
				t.Errorf("%s: %+v", c.what, got)
			}
			continue
		}
		want := c.who
		want.RequestID, want.Address, want.HTTPMethod, want.Outcome, want.Reason = a.Header().Get(RequestIDHeader),
			"192.0.2.7",
			method, c.outcome, c.reason
		if path != "/nothing" {
			want.Route = c.what
		}
		if len(got) != 1 || time.Since(got[0].Time) > time.Minute {
			t.Errorf("%s: %+v", c.what, got)
			continue
		}
		got[0].Time = time.Time{}
		if !reflect.DeepEqual(got[0], want) {
			t.Errorf("%s:\n%+v; want\n%+v", c.what, got[0], want)
		}
		for _, words := range []string{"msg=audit", "request=" + want.RequestID, "address=192.0.2.7", "outcome=" +
			c.outcome} {
			if !strings.Contains(g.log.String(), words) {
				t.Errorf("%s: no %q in\n%s", c.what, words, g.log.String())
			}
		}
	}
}

// TestRefusalsFillNoDisk: of many refusals few are recorded, and the others counted.
func TestRefusalsFillNoDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		for range 10_000 {
			g.ask("GET", "/vm")
		}
		for range 50 {
			g.ask("POST", "/wrong")
			g.ask("POST", "/tried")
		}
		if got := g.audited(); len(got) != 30 {
			t.Errorf("%d records", len(got))
		}
		time.Sleep(2 * time.Second)
		g.ask("GET", "/vm")
		if got := g.audited(); len(got) != 1 || got[0].LeftOutRefusals != 10_020 {
			t.Errorf("%+v", got)
		}
		g.ask("POST", "/vm", "Authorization", g.key(t)) // successful changes are always recorded
		if got := g.audited(); len(got) != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		remote  string
		header  http.Header
		proxied bool
		want    string
	}{
		"plain":             {"192.0.2.1:80", nil, false, "192.0.2.1"},
		"IPv6":              {"[2001:db8::1%eth0]:80", nil, false, "2001:db8::1"},
		"mapped":            {"[::ffff:192.0.2.1]:80", nil, false, "192.0.2.1"},
		"header of anybody": {"192.0.2.1:80", http.Header{"X-Forwarded-For": {"203.0.113.9"}}, false, "192.0.2.1"},
		"proxy":             {"192.0.2.1:80", http.Header{"X-Forwarded-For": {"203.0.113.9"}}, true, "203.0.113.9"},
		"the client's own": {
			"192.0.2.1:80",
			http.Header{"X-Forwarded-For": {"10.0.0.1, 203.0.113.9"}},
			true,
			"203.0.113.9",
		},
		"on a line before": {
			"192.0.2.1:80",
			http.Header{"X-Forwarded-For": {"10.0.0.1", " 203.0.113.9 "}},
			true,
			"203.0.113.9",
		},
		"no address": {"192.0.2.1:80", http.Header{
			"X-Forwarded-For": {"unknown"}, "X-Real-Ip": {"203.0.113.9"},
		}, true, "203.0.113.9"},
		"nothing of the kind": {"192.0.2.1:80", http.Header{"X-Forwarded-For": {"a\nb"}}, true, "192.0.2.1"},
		"a socket":            {"@", nil, false, ""},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: c.header}
		if got := clientAddress(r, c.proxied); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestCaller(t *testing.T) {
	g := newGate(t)
	var got Caller
	var group string
	var groupErr error
	g.handler = g.guard.Handler(
		[]Route{{Pattern: "POST /x", Permission: AnyCredential, Handle: func(r *Request) (any, error) {
			got = CallerOf(r.Context())
			group, groupErr = got.ActingGroup(r.Params)
			return nil, nil
		}}}, slog.New(slog.DiscardHandler))
	g.ask("POST", "/x?group=dev", "Authorization", g.key(t))
	if !got.IsAuthenticated() || got.Name != "ci" || got.Owner() != "ci" || got.Address != "192.0.2.7" ||
		!got.ResourcesManaged() ||
		group != "dev" || groupErr != nil {
		t.Errorf("%+v %q %v", got, group, groupErr)
	}
	for want, err := range map[string]error{
		"":                                 got.RequirePermission("list_vms"),
		"You need the permission start_vm": got.RequirePermission("start_vm"),
		"Only the root user may do this":   got.RequirePermission(farm.PermRoot),
		"You need the permission list on the node n2": got.RequireRight(farm.ResourceNode, "n2", "list"),
	} {
		if fmt.Sprint(err) != want && (want != "" || err != nil) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if got.RequireRight(farm.ResourceNode, "n1", "list") != nil || got.HasRight(farm.ResourceNode, "n1", "remove") ||
		!got.GroupHasRight("dev", farm.ResourceNode, "n1", "list") ||
		got.GroupHasRight("ops", farm.ResourceNode, "n1", "list") {
		t.Error("rights on nodes")
	}
	for query, want := range map[string]string{
		"":                                   "group: is required",
		"?group=ops":                         "You are not a member of the permission group ops",
		"?group=dev&group_id=x":              "group_id: cannot be used",
		"?group=" + strings.Repeat("x", 300): "group: must have at most",
	} {
		g.ask("POST", "/x"+query, "Authorization", g.key(t))
		if groupErr == nil || !strings.HasPrefix(groupErr.Error(), want) || group != "" {
			t.Errorf("%.20s: %v", query, groupErr)
		}
	}
	g.ask("POST", "/x?group=whatever", "Authorization", rootBasic(rootToken))
	if got.Owner() != "" || group != "whatever" || groupErr != nil {
		t.Errorf("root: %q %q %v", got.Owner(), group, groupErr)
	}
}

// TestWithoutAGuard: everything is as it was.
func TestWithoutAGuard(t *testing.T) {
	var c Caller
	g := &gate{}
	g.handler = Handler(
		append(g.routes(), Route{Pattern: "POST /x", Permission: "start_vm", Handle: func(r *Request) (any, error) {
			c = CallerOf(r.Context())
			group, err := c.ActingGroup(r.Params)
			AuditIdentity(r.Request, auth.Identity{Name: "x"})
			AuditFailure(r.Request, io.EOF)
			return group, err
		}}), slog.New(slog.NewTextHandler(g, nil)))
	a := g.ask("POST", "/x?group=a&group_id=b", "Origin", "https://evil.test")
	if status, _, body := a.envelope(t); status != "OK" || string(body) != `""` {
		t.Errorf("%s %s", status, body)
	}
	if c.IsAuthenticated() || c.Owner() != "" || c.RequirePermission("start_vm") != nil ||
		c.RequireRight(farm.ResourceNode, "x", "list") != nil ||
		c.ResourcesManaged() || !c.GroupHasRight("x", farm.ResourceNode, "x", "list") {
		t.Errorf("%+v", c)
	}
	if a := g.ask("PUT", "/vm"); a.Code != 405 || a.Header().Get("Allow") == "" {
		t.Error(a.Code)
	}
	if strings.Contains(g.log.String(), "audit") {
		t.Error(g.log.String())
	}
}

func TestLoopback(t *testing.T) {
	for name, c := range map[string]struct {
		remote, host string
		want         string // name and groups
	}{
		"a program":            {"127.0.0.1:5", "127.0.0.1:8085", " []"},
		"by name":              {"[::1]:5", "localhost:8085", " []"},
		"from elsewhere":       {"192.0.2.1:5", "127.0.0.1:8085", "401"},
		"by a name of the web": {"127.0.0.1:5", "evil.test:8085", "401"},
	} {
		who, err := Loopback{}.Identify(&http.Request{RemoteAddr: c.remote, Host: c.host})
		got := fmt.Sprint(who.Name, " ", who.Groups)
		if err != nil && farm.CodeOf(err) == farm.CodeUnauthenticated {
			got = "401"
		}
		if got != c.want || err == nil && who.Method != auth.ByLocal {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
