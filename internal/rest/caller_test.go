package rest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

var (
	anna  = auth.Identity{Name: "anna", Groups: []string{"dev"}, Method: auth.ByOIDC}
	ci    = auth.Identity{Name: "ci", KeyID: "ci", Groups: []string{"dev", "", "dev", "ops"}, Method: auth.ByKey}
	admin = auth.Identity{Name: auth.RootName, Method: auth.ByRoot, Root: true}
	node  = auth.Identity{Name: "n", KeyID: "ci", Groups: []string{"dev"}, Method: auth.ByNode}
)

// as is a caller under the rules of a gate, by which the group dev may list instances, and the node n1.
func as(t *testing.T, who auth.Identity, behind *auth.Identity) Caller {
	t.Helper()
	return Caller{Identity: who, ActsFor: behind, rules: newGate(t).guard.opts.Authorizer.Rules()}
}

func TestActsAs(t *testing.T) {
	for name, c := range map[string]struct {
		caller Caller
		want   []string
	}{
		"a key":               {as(t, ci, nil), []string{"ci", "dev", "ops"}},
		"a key for a user":    {as(t, ci, &anna), []string{"dev"}},
		"a user":              {as(t, anna, nil), []string{"anna", "dev"}},
		"root":                {as(t, admin, nil), nil},
		"nobody":              {as(t, auth.Identity{}, nil), nil},
		"nobody, with a name": {as(t, auth.Identity{Name: "x"}, nil), nil},
		"without a guard":     {Caller{Identity: ci}, nil},
	} {
		if got := c.caller.ActsAs(); !slices.Equal(got, c.want) {
			t.Errorf("%s acts as %q, want %q", name, got, c.want)
		}
	}
}

// TestRefusalsSayWhoLacksWhat: a resource that the caller may not list is one that is not there.
func TestRefusalsSayWhoLacksWhat(t *testing.T) {
	const n = farm.ResourceNode
	by, via := as(t, ci, nil), as(t, ci, nil)
	via.ByController = true
	lone := as(t, auth.Identity{Name: "x", Method: auth.ByKey}, &anna)
	for name, c := range map[string]struct {
		err  error
		want string // "": none
	}{
		"may":           {by.RequireVisibleRight(n, "n1", "list"), ""},
		"may not":       {by.RequireVisibleRight(n, "n1", "remove"), "You need the permission remove on the node n1"},
		"may not see":   {by.RequireVisibleRight(n, "n2", "list"), farm.NotFoundMessage},
		"the group may": {by.RequireGroupRight("dev", n, "n1", "list"), ""},
		"the group may not": {
			by.RequireGroupRight("dev", n, "n1", "remove"),
			"The permission group dev needs the permission remove on the node n1",
		},
		"another group may not": {
			by.RequireGroupRight("x", n, "n1", "list"),
			"The permission group x needs the permission list on the node n1",
		},
		"no group": {
			by.RequireGroupRight("", n, "n1", "remove"), "You need the permission remove on the node n1",
		},
		"the group may not see": {by.RequireGroupRight("dev", n, "n2", "list"), farm.NotFoundMessage},
		"root":                  {as(t, admin, nil).RequireGroupRight("", n, "n2", "remove"), ""},
		"has":                   {by.RequirePermission("list_vms"), ""},
		"has not":               {by.RequirePermission("start_vm"), "You need the permission start_vm"},
		"has not, by the controller": {
			via.RequirePermission("start_vm"),
			"The controller's credential needs the permission start_vm at the controller",
		},
		"root's, by the controller": {via.RequirePermission(farm.PermRoot), "Only the root user may do this"},
		"the user has not": {
			as(t, admin, &anna).RequirePermission("start_vm"),
			"Your credential needs the permission start_vm at the controller",
		},
		"the program has not": {
			lone.RequirePermission("list_vms"),
			"The controller's credential needs the permission list_vms at the controller",
		},
		"neither has the right": {as(t, admin, &anna).RequireRight(n, "n1",
			"remove"), "Your credential needs the permission remove on the node n1 at the controller"},
		"without a guard":              {Caller{}.RequirePermission(farm.PermRoot), ""},
		"without a guard, on anything": {Caller{}.RequireGroupRight("x", n, "n9", "remove"), ""},
		"a node without an order": {
			as(t, node, nil).RequirePermission("list_vms"),
			"Permission list_vms requires an order: this node has no order to use this route",
		},
		"a node whose key lacks it": {
			as(t, node, nil).RequirePermission("start_vm"), "You need the permission start_vm",
		},
	} {
		if got := messageOf(c.err); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func messageOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestWhatACallerHas(t *testing.T) {
	if c := as(t, node, nil); !c.NodeKeyAllows("list_vms") || c.NodeKeyAllows("start_vm") ||
		!(Caller{Identity: node}).NodeKeyAllows("start_vm") || !c.IsNode() {
		t.Error("what the key of a node has")
	}
	for name, c := range map[string]struct {
		caller Caller
		want   bool
	}{
		"root": {as(t, admin, nil), true}, "root for a user": {as(t, admin, &anna), false},
		"a key": {as(t, ci, nil), false}, "without a guard": {Caller{}, true},
	} {
		if c.caller.Unlimited() != c.want {
			t.Errorf("%s is unlimited: %t", name, !c.want)
		}
	}
	for owner, c := range map[string]Caller{"": as(t, admin, nil), "ci": as(t, ci, nil), "anna": as(t, anna, nil)} {
		if c.Owner() != owner {
			t.Errorf("what %s makes is %q's", c.Name, c.Owner())
		}
	}
}

// TestUnder: other rules authorize the same caller, and without rules all callers are allowed.
func TestUnder(t *testing.T) {
	grants, err := auth.Grants{}.SetGroup(farm.ServiceRegistry, "ci", []farm.Permission{"pull_vm"})
	must(t, err)
	rules := auth.NewRules(auth.Policy{
		Service: farm.ServiceRegistry, Tier: farm.TierEnterprisePlus, Authorization: true,
	}, grants)
	there := as(t, ci, nil).WithRules(rules)
	if there.RequirePermission("pull_vm") != nil || there.RequirePermission("delete_vm") == nil || there.Name != "ci" {
		t.Errorf("under the rules of the registry: %+v", there)
	}
	for name, c := range map[string]Caller{
		"nobody judges there": as(t, ci, nil).WithRules(nil),
		"nobody judges here":  Caller{Identity: ci}.WithRules(rules),
	} {
		if c.RequirePermission("delete_vm") != nil || c.IsAuthenticated() {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestRightsOn(t *testing.T) {
	got := as(t, ci, nil).RightsOn(farm.ServiceController, farm.ResourceNode, []string{"n1", "n2"})
	if !slices.Equal(got.Permissions, []string{"list_vms"}) || !got.Enforced || !got.Managed ||
		len(got.Templates) != 1 || !slices.Equal(got.Templates["n1"], []string{"list"}) {
		t.Errorf("%+v", got)
	}
	if all := (Caller{}).RightsOn(farm.ServiceController, farm.ResourceNode,
		[]string{"n1"}); all.Enforced || all.Managed || len(all.Templates) != 0 ||
		len(all.Permissions) != len(farm.AllPermissions(farm.ServiceController)) {
		t.Errorf("without a guard: %+v", all)
	}
}

// TestActingGroupOfAUser: where a program calls for a user, both belong to the group.
func TestActingGroupOfAUser(t *testing.T) {
	for query, want := range map[string]string{
		"group=dev": "", "group=ops": "You are not a member of the permission group ops",
		"group=anna": "You are not a member of the permission group anna",
	} {
		p, err := read(query, "")
		must(t, err)
		if _, err := as(t, ci, &anna).ActingGroup(p); messageOf(err) != want {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
}

// TestSteadyRoutesAreGuarded: only what nodes poll is left to its handler.
func TestSteadyRoutesAreGuarded(t *testing.T) {
	g := newGate(t)
	h := g.guard.Handler([]Route{{
		Pattern: "GET /steady", Permission: "list_vms", Frequent: true,
		Handle: func(*Request) (any, error) { return nil, nil },
	}}, slog.New(slog.DiscardHandler))
	for header, code := range map[string]int{"": http.StatusUnauthorized, g.key(t): http.StatusOK} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/steady", nil)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != code {
			t.Errorf("%q: %d, want %d", header, w.Code, code)
		}
	}
}

// TestOpenedIsAuditedImmediately, once, with the name of the opened object.
func TestOpenedIsAuditedImmediately(t *testing.T) {
	g := newGate(t)
	var during []AuditRecord
	h := g.guard.Handler(
		[]Route{{Pattern: "GET /console", Permission: "list_vms", Handle: func(r *Request) (any, error) {
			AuditOpened(r.Request, "i1")
			during = g.audited()
			return nil, nil
		}}}, slog.New(slog.DiscardHandler))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console", nil)
	r.Header.Set("Authorization", g.key(t))
	h.ServeHTTP(httptest.NewRecorder(), r)
	if len(during) != 1 || during[0].Subject != "i1" || during[0].CredentialName != "ci" ||
		during[0].Outcome != outcomeDone ||
		during[0].Route != "GET /console" {
		t.Errorf("audited %+v", during)
	}
	AuditOpened(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), "i1") // without an auditor
}

func TestLevelsOfFailures(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for code, want := range map[farm.Code]slog.Level{
		farm.CodeInternal: slog.LevelError, farm.CodeUnavailable: slog.LevelWarn, farm.CodeBusy: slog.LevelWarn,
		farm.CodeInvalid: slog.LevelDebug, farm.CodeNotFound: slog.LevelDebug, farm.CodeTooMany: slog.LevelDebug,
	} {
		if got := errorLevel(t.Context(), code); got != want {
			t.Errorf("%s is %s, want %s", code, got, want)
		}
		if got := errorLevel(gone, code); got != slog.LevelDebug {
			t.Errorf("%s of a client that is gone is %s", code, got)
		}
	}
}

// TestWebSocketsOfPages: a page of another site may not open one, wherever it was opened from.
func TestWebSocketsOfPages(t *testing.T) {
	request := func(header ...string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://here.test/console", nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	}
	for name, c := range map[string]struct {
		header []string
		ok     bool
	}{
		"a program": {[]string{"Upgrade", "websocket"}, true},
		"a page of its own": {
			[]string{"Upgrade", "websocket", "Origin", "http://here.test", "Sec-Fetch-Site", "same-origin"}, true,
		},
		"of another site": {
			[]string{"Upgrade", "websocket", "Origin", "http://x.test", "Sec-Fetch-Site", "cross-site"}, false,
		},
		"of a neighbor": {[]string{"Upgrade", "websocket", "Sec-Fetch-Site", "same-site"}, false},
		"of one that goes on": {
			[]string{"Upgrade", "websocket", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, false,
		},
		"a neighbor reads":   {[]string{"Sec-Fetch-Site", "same-site"}, true},
		"a link is followed": {[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, true},
		"another site reads": {[]string{"Origin", "http://x.test", "Sec-Fetch-Site", "cross-site"}, false},
	} {
		if err := CheckSameSite(request(c.header...)); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	judged := request("Upgrade", "websocket", "Origin", "http://x.test", "Sec-Fetch-Site", "cross-site")
	if err := CheckSameSite(judged.WithContext(context.WithValue(t.Context(), auditKey{},
		&requestAudit{}))); err != nil {
		t.Errorf("what a guard has let in: %v", err)
	}
	for upgrade, want := range map[string]struct{ asks, ok bool }{
		"": {false, true}, "WebSocket": {true, true}, "h2c": {false, false},
	} {
		r := request()
		if upgrade != "" {
			r.Header.Set("Upgrade", upgrade)
		}
		if asks, err := IsWebSocketUpgrade(r); asks != want.asks || (err == nil) != want.ok {
			t.Errorf("%q: %t, %v", upgrade, asks, err)
		}
		if r.ProtoMajor = 2; upgrade != "" {
			if asks, err := IsWebSocketUpgrade(r); asks || err == nil {
				t.Errorf("%q in HTTP/2: %t, %v", upgrade, asks, err)
			}
		}
	}
}

func TestItems(t *testing.T) {
	for body, want := range map[string]string{
		"": "1", ` {"a":"b"}`: "1 b", `[{"a":"b"},{"a":"c"}]`: "2 b c", `[]`: "0",
		`[{},{},{}]`: "The request body has 3 elements; want at most 2",
		`[1]`:        "The request body is not an array of JSON objects: found number", `[{`: "unexpected end",
		`5`: "not a JSON object",
	} {
		p := &Params{bodyText: []byte(body), queryText: "q=1"}
		items, err := p.ObjectList(2)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", body, err, want)
			}
			continue
		}
		got := []string{string(rune('0' + len(items)))}
		for _, item := range items {
			if a := item.String("a"); a != "" {
				got = append(got, a)
			}
			if single := !strings.HasPrefix(body, "["); item.Has("q") != single {
				t.Errorf("%s: the query counts: %t", body, !single)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", body, got, want)
		}
	}
}

func TestPacedStreamsAreFlushed(t *testing.T) {
	w := httptest.NewRecorder()
	if err := http.NewResponseController(newPacedStream(w)).Flush(); err != nil || !w.Flushed {
		t.Errorf("flushed %t: %v", w.Flushed, err)
	}
}

// TestGuessWithoutAGuard: the answer of the comparison comes back, until there were too many wrong ones.
func TestGuessWithoutAGuard(t *testing.T) {
	var limit auth.GuessLimiter
	wrong := farm.Errorf(farm.CodeUnauthenticated, "Wrong")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	if err := LimitedCompare(r, &limit, func() error { return nil }); err != nil {
		t.Errorf("a right one: %v", err)
	}
	compared := 0
	for range 100 {
		err := LimitedCompare(r, &limit, func() error { compared++; return wrong })
		if code := farm.CodeOf(err); code != farm.CodeUnauthenticated && code != farm.CodeTooMany {
			t.Fatalf("a wrong one: %v", err)
		}
	}
	if compared == 0 || compared == 100 {
		t.Errorf("%d of 100 were compared", compared)
	}
}

func TestUncleanPaths(t *testing.T) {
	for path, want := range map[string]bool{
		"/": false, "": true, "/a": false, "/a/": false, "/a/b": false, "//": true,
		"/a//b": true, "/a/..": true, "/a/../b": true, "/./a": true,
	} {
		if isUncleanPath(path) != want {
			t.Errorf("%q is unclean: %t", path, !want)
		}
	}
}

// TestOpenToOtherSites: with CORS pages of all sites read, and change nothing.
func TestOpenToOtherSites(t *testing.T) {
	for method, ok := range map[string]bool{http.MethodGet: true, http.MethodPost: false} {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://here.test/", nil)
		r.Header.Set("Origin", "http://x.test")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		if err := (Sites{AllowAll: true}).checkOrigin(r); (err == nil) != ok {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// TestOwnWords: of a caller's own mistakes the log has the cause or the name of the parameter alone.
func TestOwnWords(t *testing.T) {
	cause := errors.New("cause")
	foreign, invalid, caused := errors.New("foreign"), farm.Invalid("count", "secret"),
		&farm.Error{Code: farm.CodeInvalid, Message: "secret", Err: cause}
	for _, c := range []struct {
		level slog.Level
		err   error
		want  any
	}{
		{slog.LevelDebug, invalid, "count"},
		{slog.LevelDebug, caused, cause},
		{slog.LevelDebug, foreign, foreign},
		{slog.LevelWarn, invalid, invalid},
		{slog.LevelError, caused, caused},
	} {
		if got := loggableError(c.level, c.err); got != c.want {
			t.Errorf("%s %v: %v, want %v", c.level, c.err, got, c.want)
		}
	}
}

func TestNoLimit(t *testing.T) {
	var none *ConcurrencyLimit
	release, err := none.AcquireFor("x")
	must(t, err)
	release()
	limit := NewConcurrencyLimit("things", "x", 8)
	for range 8 {
		_, err = limit.AcquireFor("") // an empty name has no share per caller
		must(t, err)
	}
	if none.OpenCount() != 0 || limit.OpenCount() != 8 || len(limit.openByCaller) != 0 {
		t.Errorf("%d and %d are open, of %d callers", none.OpenCount(), limit.OpenCount(), len(limit.openByCaller))
	}
	if as := as(t, ci, nil); !as.CanSee(farm.ResourceNode, "n1") || as.CanSee(farm.ResourceNode, "n2") {
		t.Error("what a caller sees")
	}
}
