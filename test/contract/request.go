package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// request is what a case sends, before a form gives it the look of some client.
type request struct {
	method string
	path   string // without the query, escaped
	query  url.Values
	broken string         // query that cannot be read, sent as it is
	fields map[string]any // of the JSON body; nil for none
	raw    []byte         // body that is sent as it is, instead
	header http.Header
	tail   string // behind the JSON of the body
	known  bool   // its caller is known by something else than the root token
	route  *route // nil for one that does not exist
}

// form changes a request into what some client would send for it, and reports whether that
// client has such a request at all.
type form func(*request) bool

// forms are the ways of the clients of this API.
var forms = map[string]form{
	"json":    func(*request) bool { return true },
	"newline": func(r *request) bool { r.tail = "\n"; return r.fields != nil },
	"form": func(r *request) bool {
		r.header.Set("Content-Type", "application/x-www-form-urlencoded")
		return r.fields != nil
	},
	"go":       func(r *request) bool { r.tail = "\n"; r.header.Del("Content-Type"); return r.fields != nil },
	"bare":     func(r *request) bool { r.header.Del("Content-Type"); return r.fields != nil },
	"query":    inQuery,
	"body":     inBody,
	"strings":  asStrings,
	"unknown":  withUnknown,
	"nulls":    withNulls,
	"empties":  withEmpties,
	"user":     func(r *request) bool { return r.with(basic("")) },
	"root":     func(r *request) bool { return r.with(basic("root")) },
	"gzip":     func(r *request) bool { r.header.Set("Accept-Encoding", "gzip"); return true },
	"encoded":  func(r *request) bool { r.tail = "\n\n"; r.header.Del("Content-Type"); return withUnknown(r) },
	"announce": func(r *request) bool { r.header.Set("Expect", "100-continue"); return r.fields != nil },
}

// turns are the forms in which the requests of cases are sent in turn.
var turns = []string{"json", "newline", "form", "bare", "unknown", "strings", "nulls", "user", "gzip", "empties"}

// basic is the credential of a client that sends one whether it is asked for or not.
func basic(user string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+rootToken))
}

// with puts a credential on a request that has none.
func (r *request) with(credential string) bool {
	if r.header.Get("Authorization") != "" || r.known {
		return false
	}
	r.header.Set("Authorization", credential)
	return true
}

// inQuery sends the scalar fields of the body in the query.
func inQuery(r *request) bool {
	if r.fields == nil || r.route == nil || r.route.typed {
		return false
	}
	for name, value := range r.fields {
		switch kindOf(value) {
		case "array", "object", "null":
			return false
		}
		r.query.Set(name, text(value))
	}
	r.fields = nil
	return true
}

// text writes a scalar as a query has it.
func text(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	raw, _ := json.Marshal(value) // a scalar of JSON
	return string(raw)
}

// inBody sends the parameters of the query in the body.
func inBody(r *request) bool {
	if len(r.query) == 0 || r.raw != nil || r.route == nil || r.route.typed || !r.route.bodied() {
		return false
	}
	if r.fields == nil {
		r.fields = map[string]any{}
	}
	for name, values := range r.query {
		if len(values) != 1 {
			return false
		}
		if _, twice := r.fields[name]; !twice {
			r.fields[name] = values[0]
		}
	}
	r.query = url.Values{}
	return true
}

// asStrings sends integers and truth values as JSON strings.
func asStrings(r *request) bool {
	if r.fields == nil || r.route == nil || r.route.typed {
		return false
	}
	for _, p := range r.route.params {
		r.fields[p.name] = stringified(p, r.fields[p.name])
		if r.fields[p.name] == nil {
			delete(r.fields, p.name)
		}
	}
	return true
}

func stringified(p param, value any) any {
	switch v := value.(type) {
	case float64, bool:
		if p.schema.Type.Is("integer") || p.schema.Type.Is("boolean") {
			return text(v)
		}
	case []any:
		for i, item := range v {
			object, ok := item.(map[string]any)
			if p.list == nil || !ok {
				continue
			}
			changed := map[string]any{}
			for name, field := range object {
				changed[name] = field
				if ref := p.list.Properties[name]; ref != nil {
					changed[name] = stringified(param{schema: ref.Value}, field)
				}
			}
			v[i] = changed
		}
	}
	return value
}

// withUnknown adds a field and a parameter that the file does not have.
func withUnknown(r *request) bool {
	if r.route == nil || r.route.typed || r.raw != nil {
		return false
	}
	if r.fields == nil {
		r.query.Set("x_client_version", "2.1")
		return true
	}
	r.fields["x_client_version"] = map[string]any{"major": 2.0}
	return true
}

// withNulls returns every optional field of the body that is not given as null.
func withNulls(r *request) bool { return withNothing(r, nil) }

// withEmpties returns every optional field of the body that is not given as "".
func withEmpties(r *request) bool { return withNothing(r, "") }

func withNothing(r *request, nothing any) bool {
	if r.fields == nil || r.route == nil || r.route.typed {
		return false
	}
	for _, p := range r.route.params {
		if p.in == "body" && !p.required && !has(r.fields, p.name) && !r.query.Has(p.name) {
			r.fields[p.name] = nothing
		}
	}
	return true
}

// answer is what came back.
type answer struct {
	code   int
	header http.Header
	body   []byte
	value  any // of a JSON body
}

// limits of one call: clients time out after five seconds.
const (
	callTime = 5 * time.Second
	most     = 32 << 20 // bytes of an answer
)

// clientBy sends requests and returns answers unchanged: without transparent gzip, without
// redirects.
func clientBy(connections http.RoundTripper) *http.Client {
	return &http.Client{Transport: connections, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// body returns the bytes of the body.
func (r *request) body() []byte {
	if r.raw != nil || r.fields == nil {
		return r.raw
	}
	raw, _ := json.Marshal(r.fields) // it came from JSON
	return append(raw, r.tail...)
}

// send makes the call at an address. A stream is read for a moment only.
func (r *request) send(ctx context.Context, to door, stream time.Duration) (*answer, error) {
	limit := callTime
	if stream > 0 {
		limit = stream
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	target := to.address + r.path
	if query := r.broken + r.query.Encode(); query != "" {
		target += "?" + query
	}
	var body io.Reader
	if raw := r.body(); raw != nil {
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, err
	}
	req.Header = r.header.Clone()
	resp, err := clientBy(to.by).Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	a := &answer{code: resp.StatusCode, header: resp.Header}
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil && stream == 0 {
		return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	return a, a.decode()
}

// decode unpacks the body and reads its JSON.
func (a *answer) decode() error {
	if a.header.Get("Content-Encoding") == "gzip" {
		zip, err := gzip.NewReader(bytes.NewReader(a.body))
		if err != nil {
			return fmt.Errorf("an answer that should be gzip'ed: %w", err)
		}
		if a.body, err = io.ReadAll(io.LimitReader(zip, most)); err != nil {
			return err
		}
	}
	if a.kind() == "application/json" && len(a.body) > 0 {
		return json.Unmarshal(a.body, &a.value)
	}
	return nil
}

func (a *answer) kind() string {
	kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	return kind
}

// message returns status and message of an envelope.
func (a *answer) message() (status, message string) {
	fields, _ := a.value.(map[string]any)
	status, _ = fields["status"].(string)
	message, _ = fields["message"].(string)
	return status, message
}

// well reports whether the call succeeded.
func (a *answer) well() bool {
	status, _ := a.message()
	return a.code < 400 && a.code != http.StatusNotModified && status != "FAIL"
}

// formed returns the request in a form; the plain one when no client sends it so.
func (r *request) formed(name string) (*request, string) {
	changed := r.clone()
	if f := forms[name]; f != nil && f(changed) {
		return changed, name
	}
	return r.clone(), "json"
}

func (r *request) clone() *request {
	c := *r
	c.header, c.query = r.header.Clone(), url.Values{}
	for name, values := range r.query {
		c.query[name] = slices.Clone(values)
	}
	if r.fields != nil {
		c.fields = map[string]any{}
		raw, _ := json.Marshal(r.fields) // it came from JSON
		_ = json.Unmarshal(raw, &c.fields)
	}
	return &c
}
