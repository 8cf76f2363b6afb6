package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// answer is a response, with the log that was written until it came.
type answer struct {
	*httptest.ResponseRecorder
	log string
}

// envelope decodes the body and fails when it is not exactly one envelope.
func (a answer) envelope(t *testing.T) (status, message string, body json.RawMessage) {
	t.Helper()
	var e struct {
		Status  string          `json:"status"`
		Message *string         `json:"message"`
		Body    json.RawMessage `json:"body"`
	}
	dec := json.NewDecoder(a.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil || e.Message == nil {
		t.Fatalf("%q is no envelope: %v", a.Body, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		t.Fatal("something follows the envelope")
	}
	if got := a.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("the type is %q", got)
	}
	return e.Status, *e.Message, e.Body
}

// ask sends one request to a table of routes.
func ask(routes []Route, r *http.Request) answer {
	var log bytes.Buffer
	a := httptest.NewRecorder()
	h := Handler(routes, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	h.ServeHTTP(a, r)
	return answer{a, log.String()}
}

// one calls a single route whose handler returns one result.
func one(body any, err error) answer {
	routes := []Route{
		{Pattern: "GET /x", Permission: NoCredential, Handle: func(*Request) (any, error) { return body, err }},
	}
	return ask(routes, httptest.NewRequest(http.MethodGet, "/x?secret=hush", nil))
}

// codesOfFarm reads the constants of type Code from farm's source, so that a new code
// cannot be forgotten here.
func codesOfFarm(t *testing.T) []farm.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../farm/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []farm.Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Type == nil || fmt.Sprint(spec.Type) != "Code" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		codes = append(codes, farm.Code(text))
		return true
	})
	return codes
}

func TestEveryCodeHasItsStatus(t *testing.T) {
	want := map[farm.Code]int{
		"invalid": 400, "not-found": 200, "refused": 200, "no-version": 400, "unauthenticated": 401, "forbidden": 403,
		"conflict": 409, "no-parent": 412, "too-large": 413, "too-many": 429, "busy": 429, "unavailable": 503,
		"internal": 500,
	}
	codes := codesOfFarm(t)
	if len(codes) != len(want) {
		t.Errorf("farm has the codes %v, %d are expected", codes, len(want))
	}
	for _, code := range codes {
		cause := errors.New("dial 10.1.2.3: connection refused")
		a := one(nil,
			fmt.Errorf("use case: %w", &farm.Error{Code: code, Message: "A <sentence> & \"more\"", Err: cause}))
		if a.Code != want[code] {
			t.Errorf("%s answers %d, want %d", code, a.Code, want[code])
		}
		if strings.Contains(a.Body.String(), "10.1.2.3") || strings.Contains(a.Body.String(), "use case") {
			t.Errorf("%s shows the cause: %s", code, a.Body)
		}
		if !strings.Contains(a.log, "10.1.2.3") {
			t.Errorf("%s does not log the cause: %s", code, a.log)
		}
		status, message, body := a.envelope(t)
		if status != "FAIL" || body != nil {
			t.Errorf("%s: status %s, body %s", code, status, body)
		}
		switch code {
		case farm.CodeUnauthenticated, farm.CodeInternal: // have texts of their own, tested below
		default:
			if message != "A <sentence> & \"more\"" {
				t.Errorf("%s: message %q", code, message)
			}
		}
	}
}

func TestUnauthenticatedIsExact(t *testing.T) {
	a := one(nil, &farm.Error{Code: farm.CodeUnauthenticated, Message: "wrong token"})
	if got := a.Body.String(); a.Code != 401 ||
		got != "{\"status\":\"FAIL\",\"message\":\"Authentication Required\"}\n" {
		t.Errorf("%d %q", a.Code, got)
	}
}

func TestNotFoundIsExact(t *testing.T) {
	a := one(nil, farm.NotFound())
	if got := a.Body.String(); a.Code != 200 || got != "{\"status\":\"FAIL\",\"message\":\"Not found\"}\n" {
		t.Errorf("%d %q", a.Code, got)
	}
}

// TestInternalErrorsShowNothing: whatever went wrong inside, the client gets the
// request id and the log gets the rest.
func TestInternalErrorsShowNothing(t *testing.T) {
	for name, a := range map[string]answer{
		"foreign":  one(nil, errors.New("secret/path: permission denied")),
		"internal": one(nil, &farm.Error{Code: farm.CodeInternal, Message: "secret/path"}),
		"encoding": one(map[string]any{"x": func() string { return "secret/path" }}, nil),
	} {
		status, message, body := a.envelope(t)
		id := a.Header().Get("X-Request-Id")
		if a.Code != 500 || status != "FAIL" || body != nil || len(id) != 16 ||
			message != "Internal error (request "+id+")" {
			t.Errorf("%s: %d %s %q %s", name, a.Code, status, message, body)
		}
		if !strings.Contains(a.log, "request="+id) || !strings.Contains(a.log, "level=ERROR") ||
			strings.Contains(a.log, "hush") {
			t.Errorf("%s: log is %s", name, a.log)
		}
	}
}

func TestSuccess(t *testing.T) {
	type record struct {
		ID string `json:"id"`
	}
	for want, body := range map[string]any{
		`{"status":"OK","message":""}`:                    nil,
		`{"status":"OK","message":"","body":null}`:        Null,
		`{"status":"OK","message":"","body":{"id":"a"}}`:  record{"a"},
		`{"status":"OK","message":"","body":[]}`:          []record{},
		`{"status":"OK","message":"","body":[1,2]}`:       json.RawMessage("[1,2]"),
		`{"status":"OK","message":"","body":"a\u003cb"}`:  "a<b",
		`{"status":"OK","message":"","body":{"id":"\""}}`: &record{`"`},
	} {
		a := one(body, nil)
		if got := a.Body.String(); a.Code != 200 || got != want+"\n" {
			t.Errorf("%d %q, want %q", a.Code, got, want)
		}
	}
}

func TestRequestIDsDiffer(t *testing.T) {
	a, b := one(nil, nil).Header().Get("X-Request-Id"), one(nil, nil).Header().Get("X-Request-Id")
	if a == b || a == "" {
		t.Errorf("ids are %q and %q", a, b)
	}
}

// TestAnswersAreWhatTheySay: browsers must not guess the content type of any response.
func TestAnswersAreWhatTheySay(t *testing.T) {
	h := Handler(table(), slog.New(slog.DiscardHandler))
	for _, at := range []string{"/api/v1/vm", "/api/v1/vm/7", "/stream", "/stream?fail=1", "/nothing"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", at, nil))
		if w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", at, w.Header())
		}
	}
}

// table is a small service: two methods on one path, a path value, a stream.
func table() []Route {
	echo := func(name string) HandlerFunc {
		return func(r *Request) (any, error) { return name + r.PathValue("id") + r.Params.String("id"), r.Params.Err() }
	}
	return []Route{
		{Pattern: "GET /api/v1/vm", Permission: NoCredential, Handle: echo("get")},
		{Pattern: "POST /api/v1/vm", Permission: NoCredential, Handle: echo("post")},
		{Pattern: "GET /api/v1/vm/{id}", Permission: NoCredential, Handle: echo("by id ")},
		{
			Pattern: "GET /stream", Permission: NoCredential,
			HandleRaw: func(w http.ResponseWriter, r *http.Request) error {
				if r.URL.Query().Has("fail") {
					return farm.Invalid("fail", "was asked for")
				}
				_, err := w.Write([]byte("raw bytes"))
				return err
			},
		},
	}
}

func TestRouting(t *testing.T) {
	for _, c := range []struct {
		method, target, body string
		code                 int
		want                 string
	}{
		{"GET", "/api/v1/vm?id=1", "", 200, `"get1"`},
		{"POST", "/api/v1/vm", `{"id":"2"}`, 200, `"post2"`},
		{"GET", "/api/v1/vm/x%2Fy", "", 200, `"by id x/y"`},
		{"POST", "/api/v1/vm", `{"id":`, 400, "not a JSON object"},
		{"POST", "/api/v1/vm", `{"id":[1]}`, 400, "id: must be a string"},
		{"POST", "/api/v1/vm", strings.Repeat(" ", MaxBody+1), 413, "larger than"},
		{"GET", "/", "", 404, "No such route: GET /"},
		{"GET", "/api/v1/nothing\"<x>", "", 404, `No such route: GET /api/v1/nothing"<x>`},
		{"GET", "/api/v1/vm/", "", 404, "No such route"},
		{"GET", "//nothing/../x", "", 404, "No such route"},
		{"DELETE", "/api/v1/vm", `{"id":"1"}`, 405, "Method DELETE is not allowed here (allowed: GET, HEAD, POST)"},
		{"BREW", "/api/v1/vm", "", 405, "Method BREW is not allowed here"},
		{"POST", "/stream", "", 405, "allowed: GET, HEAD"},
		{"GET", "/stream?fail", "", 400, "fail: was asked for"},
	} {
		r := httptest.NewRequest(c.method, "/", strings.NewReader(c.body))
		r.URL.Path, r.URL.RawQuery, _ = strings.Cut(c.target, "?")
		if strings.Contains(r.URL.Path, "%") {
			r.URL.RawPath, r.URL.Path = r.URL.Path, strings.ReplaceAll(r.URL.Path, "%2F", "/")
		}
		a := ask(table(), r)
		status, message, body := a.envelope(t)
		if a.Code != c.code || (status == "OK") != (c.code == 200) {
			t.Errorf("%s %s: %d %s", c.method, c.target, a.Code, status)
		}
		if !strings.Contains(message+string(body), c.want) {
			t.Errorf("%s %s: %q %s, want %s", c.method, c.target, message, body, c.want)
		}
		if (a.Header().Get("Allow") != "") != (c.code == 405) || a.Header().Get("X-Request-Id") == "" {
			t.Errorf("%s %s: headers %v", c.method, c.target, a.Header())
		}
	}
}

func TestRawAnswersAreLeftAlone(t *testing.T) {
	a := ask(table(), httptest.NewRequest(http.MethodGet, "/stream", nil))
	if a.Code != 200 || a.Body.String() != "raw bytes" {
		t.Errorf("%d %q", a.Code, a.Body)
	}
}

func TestPanicsBecomeInternalErrors(t *testing.T) {
	for name, route := range map[string]Route{
		"handler": {Pattern: "GET /x", Handle: func(*Request) (any, error) { panic("secret/path") }},
	} {
		a := ask([]Route{route}, httptest.NewRequest(http.MethodGet, "/x", nil))
		status, message, _ := a.envelope(t)
		id := a.Header().Get("X-Request-Id")
		if a.Code != 500 || status != "FAIL" || message != "Internal error (request "+id+")" {
			t.Errorf("%s: %d %s %q", name, a.Code, status, message)
		}
		if !strings.Contains(a.log, "handler panicked") || !strings.Contains(a.log, "routes_test.go") {
			t.Errorf("%s: the log has no stack: %s", name, a.log)
		}
	}
}

func TestAbortHandlerAborts(t *testing.T) {
	defer func() {
		if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // the sentinel itself
			t.Errorf("recovered %v", p)
		}
	}()
	ask([]Route{{Pattern: "GET /x", Handle: func(*Request) (any, error) { panic(http.ErrAbortHandler) }}},
		httptest.NewRequest(http.MethodGet, "/x", nil))
}

// TestAFailureIsAlwaysAnswered: a context that ended, by a time-out or a stop, must
// not leave a client with an empty 200. Only the level of the log entry differs.
func TestAFailureIsAlwaysAnswered(t *testing.T) {
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for level, ctx := range map[string]context.Context{"DEBUG": cut, "WARN": late} {
		for method, advice := range map[string]string{
			"GET": "; try again", "DELETE": "; look whether it took effect before trying again",
		} {
			route := Route{Pattern: "/x", Handle: func(r *Request) (any, error) { return nil, r.Context().Err() }}
			a := ask([]Route{route}, httptest.NewRequest(method, "/x", nil).WithContext(ctx))
			if status, message, _ := a.envelope(t); a.Code != 503 || status != "FAIL" ||
				!strings.HasSuffix(message, advice) {
				t.Errorf("%s %v: %d %s %q", method, ctx.Err(), a.Code, status, message)
			}
			if !strings.Contains(a.log, "level="+level) || !strings.Contains(a.log, ctx.Err().Error()) {
				t.Errorf("%s %v: log is %s", method, ctx.Err(), a.log)
			}
		}
	}
	a := one(nil, farm.Unavailable(context.DeadlineExceeded, "The registry cannot be reached"))
	if _, message, _ := a.envelope(t); message != "The registry cannot be reached" {
		t.Errorf("a time-out that was put into words says %q", message)
	}
}

// TestLimited: a route has the timeout unless it waits on purpose.
func TestLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func(r *Request) (any, error) {
			select {
			case <-r.Context().Done():
				return nil, r.Context().Err()
			case <-time.After(time.Minute):
				return r.Params.String("id"), nil
			}
		}
		routes := []Route{
			{Pattern: "GET /short", Handle: wait},
			{Pattern: "GET /long", Handle: wait, Waits: true},
			{Pattern: "GET /raw", HandleRaw: func(http.ResponseWriter, *http.Request) error { return farm.NotFound() }},
		}
		limited := WithTimeout(15*time.Second, routes)
		for path, want := range map[string]struct {
			code int
			took time.Duration
		}{"/short": {503, 15 * time.Second}, "/long": {200, time.Minute}, "/raw": {200, 0}} {
			begin := time.Now()
			a := ask(limited, httptest.NewRequest(http.MethodGet, path+"?id=7", nil))
			if took := time.Since(begin); a.Code != want.code || took != want.took {
				t.Errorf("%s: %d after %s", path, a.Code, took)
			}
		}
		if begin := time.Now(); ask(routes, httptest.NewRequest(http.MethodGet, "/short", nil)).Code != 200 ||
			time.Since(begin) != time.Minute {
			t.Error("the given routes were changed")
		}
	})
}

func TestTypedRoutesGetTheirBodyAsItCame(t *testing.T) {
	route := Route{Pattern: "POST /x", DecodesBody: true, Handle: func(r *Request) (any, error) {
		return []any{string(r.Params.RawBody()), r.Params.String("q"), len(r.Params.Keys())}, nil
	}}
	r := httptest.NewRequest(http.MethodPost, "/x?q=1", strings.NewReader(" [no json\n"))
	if _, _, body := ask([]Route{route}, r).envelope(t); string(body) != `[" [no json\n","1",0]` {
		t.Errorf("body is %s", body)
	}
	r = httptest.NewRequest(http.MethodPost, "/x", strings.NewReader(strings.Repeat("x", MaxBody+1)))
	if a := ask([]Route{route}, r); a.Code != 413 {
		t.Errorf("too large: %d", a.Code)
	}
}

func TestAnEmptyListIsAnArray(t *testing.T) {
	a := one(NonNil[string](nil), nil)
	if got := a.Body.String(); got != "{\"status\":\"OK\",\"message\":\"\",\"body\":[]}\n" {
		t.Errorf("%q", got)
	}
}

func TestPanicInAStreamBreaksTheConnection(t *testing.T) {
	server := httptest.NewServer(Handler(
		[]Route{{
			Pattern: "GET /bulk", Permission: NoCredential,
			HandleRaw: func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("Content-Length", "1000")
				_, _ = w.Write([]byte("half"))
				panic("gone wrong")
			},
		}}, slog.New(slog.DiscardHandler)))
	defer server.Close()
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	resp, err := http.Get(server.URL + "/bulk")
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
	if err == nil {
		t.Error("a half written answer looks whole")
	}
}

// TestAnswersThatAreMade: one that was made once, and those of raw routes, are as any other.
func TestAnswersThatAreMade(t *testing.T) {
	body := map[string]int{"a": 1}
	whole, err := Encode(body)
	must(t, err)
	w := httptest.NewRecorder()
	must(t, WriteResponse(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), body))
	for name, got := range map[string]string{
		"made": string(whole), "of a raw route": w.Body.String(), "of a handler": one(whole, nil).Body.String(),
	} {
		if got != `{"status":"OK","message":"","body":{"a":1}}`+"\n" {
			t.Errorf("%s: %s", name, got)
		}
	}
	impossible := func() {}
	if _, err := Encode(impossible); err == nil {
		t.Error("what has no JSON was made")
	}
	if err := WriteResponse(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil),
		impossible); err == nil {
		t.Error("what has no JSON was answered")
	}
	w = httptest.NewRecorder()
	if WriteNotFound(w, "Gone"); w.Code != http.StatusNotFound ||
		w.Body.String() != `{"status":"FAIL","message":"Gone"}`+"\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
