package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
)

// broken is a request that the file forbids: a good one with one parameter spoilt.
type broken struct {
	name  string
	route *route
	param string // "" when it is the request as a whole
	inner string // field of it that is spoilt
	says  string // words that the refusal has: the allowed range
	value any    // nil: the parameter is left out
	raw   string
}

// derive makes the requests that break each parameter of a route: left out when it is
// needed, of a wrong type, and beyond each of its limits.
func derive(r *route) []broken {
	var list []broken
	add := func(param string, what fault, value any) {
		list = append(list, broken{name: fmt.Sprintf("%s: %s %s", r.pattern, param,
			what.text), route: r, param: param, inner: what.inner, says: what.says, value: value})
	}
	if !r.bodied() || !r.enveloped() {
		return nil
	}
	if !r.typed {
		list = append(list, broken{name: r.pattern + ": undecodable JSON", route: r, raw: `{"id": "x`},
			broken{name: r.pattern + ": an array", route: r, raw: `[1]`})
	}
	for _, p := range r.params {
		if p.in == "path" || p.in == "header" || r.typed && p.in == "query" {
			continue
		}
		if p.required && !r.typed {
			add(p.name, fault{text: "is left out"}, nil)
		}
		add(p.name, fault{text: "has a wrong type"}, wrongType(p.schema))
		if !r.typed {
			for what, value := range beyond(p.schema) {
				add(p.name, what, value)
			}
		}
	}
	return list
}

// enveloped reports whether the route answers in the envelope when all is well.
func (r *route) enveloped() bool {
	answer := r.op.Responses.Value("200")
	return answer != nil && len(answer.Value.Content) == 1 && answer.Value.Content["application/json"] != nil &&
		answer.Ref != ""
}

// wrongType returns a value of no type that a schema allows.
func wrongType(s *openapi3.Schema) any {
	if s.Type.Is("array") || s.Type.Is("object") {
		return true
	}
	return map[string]any{"wrong": true}
}

// fault describes what is wrong with a value, with which field of it, and what is allowed.
type fault struct{ text, inner, says string }

// beyond returns values just outside of the limits of a schema.
func beyond(s *openapi3.Schema) map[fault]any {
	out := map[fault]any{}
	for _, one := range s.OneOf {
		for what, value := range beyond(one.Value) {
			if check(s, value) != nil {
				what.says = "" // of one alternative
				out[what] = value
			}
		}
	}
	limits := limitsOf(s)
	if s.Min != nil {
		out[fault{text: "is too small", says: limits}] = *s.Min - 1
	}
	if s.Max != nil {
		out[fault{text: "is too large", says: limits}] = *s.Max + 1
	}
	if s.Type.Is("integer") {
		out[fault{text: "is a fraction", says: limits}] = max(1, deref(s.Min)) + 0.5
		out[fault{text: "is a text", says: limits}] = "many"
	}
	if s.Type.Is("boolean") {
		out[fault{text: "is a text"}] = "maybe"
	}
	if s.MaxLength != nil {
		out[fault{text: "is too long", says: limits}] = strings.Repeat("x", int(*s.MaxLength)+1)
	}
	if s.Enum != nil || s.Pattern != "" || s.Format == "uuid" || s.Format == "ipv4" {
		out[fault{text: "is none of its values", says: limits}] = "no such value"
	}
	if s.MaxItems != nil && *s.MaxItems < 2000 {
		out[fault{text: "has too many elements"}] = slices.Repeat([]any{"x"}, int(*s.MaxItems)+1)
	}
	maps.Copy(out, insides(s))
	return out
}

// limitsOf returns the words for what a schema allows that a refusal has to have.
func limitsOf(s *openapi3.Schema) string {
	var words []string
	if s.Max != nil && s.Min != nil {
		words = append(words, text(*s.Min), text(*s.Max))
	}
	if s.MaxLength != nil && s.Pattern == "" {
		words = append(words, fmt.Sprint(*s.MaxLength))
	}
	if len(s.Enum) > 0 {
		words = append(words, fmt.Sprint(s.Enum[0]))
	}
	return strings.Join(words, " ")
}

func deref(f *float64) float64 {
	if f == nil {
		return 0
	}
	return *f
}

// insides returns objects, alone or in an array, with one broken field and the required ones valid.
func insides(s *openapi3.Schema) map[fault]any {
	out := map[fault]any{}
	inner, wrap, mark := s, func(v map[string]any) any { return v }, "."
	if s.Items != nil && len(s.Items.Value.Properties) > 0 {
		inner, wrap, mark = s.Items.Value, func(v map[string]any) any { return []any{v} }, "[]."
	}
	for name, ref := range inner.Properties {
		spoil := map[fault]any{{text: "has a wrong type"}: wrongType(ref.Value)}
		maps.Copy(spoil, beyond(ref.Value))
		for what, value := range spoil {
			object := good(inner)
			object[name] = value
			out[fault{"with " + name + " that " + what.text, mark + name, what.says}] = wrap(object)
		}
		if slices.Contains(inner.Required, name) {
			object := good(inner)
			delete(object, name)
			out[fault{"without " + name, mark + name, ""}] = wrap(object)
		}
	}
	return out
}

// samples are values that the patterns of inner fields allow.
var samples = map[string]any{"name": "web", "guest_port": 80.0, "size": "60G"}

func good(s *openapi3.Schema) map[string]any {
	object := map[string]any{}
	for name := range s.Properties {
		if v, ok := samples[name]; ok {
			object[name] = v
		}
	}
	return object
}

// spoil makes the broken request out of a good one.
func (b broken) spoil(base *request) *request {
	r := base.clone()
	if b.raw != "" {
		r.raw = []byte(b.raw)
		return r
	}
	if b.value == nil {
		delete(r.fields, b.param)
		r.query.Del(b.param)
		return r
	}
	if r.fields == nil {
		r.fields = map[string]any{}
		r.header.Set("Content-Type", "application/json")
	}
	r.fields[b.param] = b.value
	return r
}

// bases are what the valid requests of routes need in addition to what the file requires.
var bases = map[string]map[string]any{
	"POST /api/v1/image":                  {"new_template_name": "x"},
	"PUT /registry/vm/arch":               {"arch": "arm64"},
	"POST /registry/v2/upkeep":            {"do": "check"},
	"POST /api/v1/node/adopt":             {"action": "keep"},
	"POST /registry/v2/push":              {"config": map[string]any{}, "name": "x"},
	"POST /registry/pause":                {"seconds": 0.0},
	"POST /api/v1/vm":                     {"startup_script": "ZXhpdCAw", "script_monitoring": true},
	"POST /api/v1/maintenance":            {"for": "1s"},
	"PUT /api/v1/node/rollout":            {"action": "pause"},
	"DELETE /api/v1/node/group":           {"group_ids": []any{unknownID}, "node_ids": []any{unknownID}},
	"POST /api/v1/node/group":             {"group_ids": []any{unknownID}, "node_ids": []any{unknownID}},
	"POST /queue/v1/join":                 {"protocol": 1.0},
	"POST /queue/v1/poll":                 {"protocol": 1.0},
	"POST /queue/v1/report":               {"protocol": 1.0, "seq": 1.0, "statuses": []any{}},
	"GET /api/v1/macaddr":                 {"limit": "10"},
	"PUT /registry/files/{path}":          nil,
	"POST /api/v1/apikey":                 {"ttl": 60.0, "groups": []any{"x"}},
	"POST /v1/apikey":                     {"ttl": 60.0, "groups": []any{"x"}},
	"PUT /api/v1/apikey":                  {"groups": []any{"x"}},
	"POST /log":                           {"service": "contract"},
	"GET /registry/log/view":              {"service": "contract"},
	"GET /api/v1/log/view":                {"service": "contract"},
	"GET /registry/log/entries":           {"service": "contract"},
	"GET /api/v1/log/entries":             {"service": "contract"},
	"GET /api/v1/filter/complete":         {"resource": "instances"},
	"POST /api/v1/registry/vm/distribute": {},
	"PUT /api/v1/node/scan": { // its node is looked for before its body is read
		"id": "$node_work", "host": "contract", "scanner": "contract", "version": "1",
		"scanned": "2026-01-31T12:00:00Z",
		"counts":  map[string]any{}, "vulnerabilities": []any{}, "packages": []any{},
	},
	"POST /queue/v1/scan": { // its node shows who it is before its body is read
		"node_id": "$node_hand", "host": "contract", "scanner": "contract", "version": "1",
		"scanned": "2026-01-31T12:00:00Z",
		"counts":  map[string]any{}, "vulnerabilities": []any{}, "packages": []any{},
	},
	"PUT /registry/v2/vm/scan": { // its version is looked for before its body is read
		"id": "$template", "scanner": "contract", "version": "1", "database": "2026-01-31T06:00:00Z",
		"scanned": "2026-01-31T12:00:00Z",
		"counts":  map[string]any{}, "report": map[string]any{},
	},
}

// unknownID is the ID of no record.
const unknownID = "11111111-2222-4333-8444-555555555555"

// base makes a request of a route that is good in form and meets nothing that exists.
func base(r *route) *request {
	req := &request{method: r.method, path: r.path, route: r, query: url.Values{}, header: http.Header{}}
	if strings.Contains(r.path, "{") {
		req.path = strings.NewReplacer("{path}", "contract.txt").Replace(r.path)
		for _, p := range r.params {
			req.path = strings.ReplaceAll(req.path, "{"+p.name+"}", unknownID)
		}
	}
	for _, p := range r.params {
		if !p.required || p.in == "path" {
			continue
		}
		value, ok := bases[r.pattern][p.name]
		if !ok {
			value = any(unknownID)
		}
		req.put(p, value)
	}
	for name, value := range bases[r.pattern] {
		for _, p := range r.params {
			if p.name == name {
				req.put(p, value)
			}
		}
	}
	if len(req.fields) > 0 {
		req.header.Set("Content-Type", "application/json")
	}
	return req
}

func (r *request) put(p param, value any) {
	if values, ok := value.([]any); ok && p.in == "query" {
		r.query.Del(p.name)
		for _, one := range values {
			r.query.Add(p.name, text(one))
		}
		return
	}
	if p.in == "query" {
		r.query.Set(p.name, text(value))
		return
	}
	if r.fields == nil {
		r.fields = map[string]any{}
	}
	r.fields[p.name] = value
}

// mostTries is how often a request is sent again that a limit refused.
const mostTries = 50

// spoilt sends a broken request and describes what is wrong with its answer.
func (p *caseRunner) spoilt(ctx context.Context, b broken) []string {
	r := b.spoil(base(b.route))
	known := vars(p.stage.vars("up"))
	for _, values := range r.query {
		values[0] = known.fill(values[0])
	}
	if r.fields != nil {
		r.fields, _ = known.fillAny(r.fields).(map[string]any)
	}
	if b.route.permission == "node" {
		r.header.Set("Authorization", known.fill("Bearer $secret_hand"))
	}
	door := p.stage.door("up", "", r.path)
	a, err := r.send(ctx, door, 0)
	// cases of one caller share its part of a limit
	for try := 0; err == nil && a.code == 429 && try < mostTries; try++ {
		time.Sleep(pause)
		a, err = r.send(ctx, door, 0)
	}
	if err != nil {
		return []string{err.Error()}
	}
	refuses := ""
	if b.route.typed || b.inner != "" {
		refuses = b.param + b.inner
	}
	x := exchange{who: b.name, route: b.route, answer: a, asked: askedOf(r), refuses: refuses}
	faults := p.ledger.take(x)
	_, message := a.message()
	switch {
	case a.code != 400:
		faults = append(faults, fmt.Sprintf("400 was expected, and it was %d: %s", a.code, short(string(a.body), 300)))
	case b.param != "" && !b.route.typed && !names(message, b.param):
		faults = append(faults, fmt.Sprintf("the message does not name %s: %q", b.param, message))
	}
	for word := range strings.FieldsSeq(b.says) {
		if !strings.Contains(message, word) {
			faults = append(faults, fmt.Sprintf("the message does not say what is allowed (%s): %q", b.says, message))
		}
	}
	if len(faults) > 0 {
		faults = append(faults, fmt.Sprintf("sent: %s %s?%s %s", r.method, r.path, r.query.Encode(),
			short(string(r.body()), 300)))
	}
	return faults
}
