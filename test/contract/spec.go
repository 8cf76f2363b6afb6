package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
)

// spec is api/openapi.yaml as the run uses it.
type spec struct {
	doc    *openapi3.T
	routes map[string]*route // by method and path
}

// route is one operation of the file.
type route struct {
	pattern    string // method and path, as the muxes have it
	method     string
	path       string // the file's, with {names}
	permission string
	when       string              // what has to be on for it to be there; "" for nothing
	typed      bool                // its bodies are read as they are
	op         *openapi3.Operation // strict, and with the other forms of parameters
	plain      *openapi3.Operation // as the file has it
	params     []param
}

// param is one parameter of a route, wherever the file has it.
type param struct {
	name     string
	in       string // path, query or body
	required bool
	schema   *openapi3.Schema
	list     *openapi3.Schema // of the objects that an array of the body has
}

// formats are those formats of strings whose values are checked.
var formats = []openapi3.SchemaValidationOption{
	openapi3.MultiErrors(),
	openapi3.WithStringFormatValidator("uuid", format(func(s string) error { return uuid.Validate(s) })),
	openapi3.WithStringFormatValidator("ipv4",
		format(func(s string) error { _, err := netip.ParseAddr(s); return err })),
	openapi3.WithStringFormatValidator("date-time",
		format(func(s string) error { _, err := time.Parse(time.RFC3339Nano, s); return err })),
}

// format is a check of a string as the library wants it.
type format func(string) error

// Validate implements openapi3.StringFormatValidator.
func (f format) Validate(text string) error { return f(text) }

// readFile reads the file.
func readFile() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		return nil, fmt.Errorf("api/openapi.yaml: %w", err)
	}
	return doc, nil
}

// readValid reads the file and checks it, with its examples.
func readValid() (*openapi3.T, error) {
	doc, err := readFile()
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(openapi3.NewLoader().Context); err != nil {
		return nil, fmt.Errorf("api/openapi.yaml: %w", err)
	}
	return doc, nil
}

// loadSpec reads the file, and makes its responses strict: a field that it does not name is a
// fault. Parameters get all the forms that they may have.
func loadSpec() (*spec, error) {
	plain, err := readValid()
	if err != nil {
		return nil, err
	}
	doc, err := readFile()
	if err != nil {
		return nil, err
	}
	for name, ref := range doc.Components.Schemas {
		if err := widen(ref.Value); err != nil {
			return nil, fmt.Errorf("api/openapi.yaml: x-also of %s: %w", name, err)
		}
	}
	s := &spec{doc: doc, routes: map[string]*route{}}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			r := &route{pattern: method + " " +
				path, method: method, path: path, op: op, plain: plain.Paths.Value(path).GetOperation(method)}
			r.permission, _ = op.Extensions["x-permission"].(string)
			r.when, _ = op.Extensions["x-when"].(string)
			r.typed, _ = op.Extensions["x-typed"].(bool)
			r.params = paramsOf(item, op)
			s.routes[r.pattern] = r
			for _, answer := range op.Responses.Map() {
				for _, media := range answer.Value.Content {
					strict(media.Schema, map[*openapi3.Schema]bool{})
				}
			}
		}
	}
	return s, nil
}

// widen makes the other form of a parameter, which the file has under x-also, an alternative of its schema.
func widen(s *openapi3.Schema) error {
	also, ok := s.Extensions["x-also"]
	if !ok {
		return nil
	}
	raw, err := json.Marshal(also)
	if err != nil {
		return err
	}
	own, other := *s, &openapi3.Schema{}
	if err := other.UnmarshalJSON(raw); err != nil {
		return err
	}
	*s = openapi3.Schema{Description: own.Description, OneOf: openapi3.SchemaRefs{own.NewRef(), other.NewRef()}}
	return nil
}

// serves keeps the routes that exist when some features are on.
func (s *spec) serves(on ...string) {
	maps.DeleteFunc(s.routes, func(_ string, r *route) bool { return r.when != "" && !slices.Contains(on, r.when) })
}

// paramsOf lists the parameters of an operation: those of path and query, and the fields of
// its body.
func paramsOf(item *openapi3.PathItem, op *openapi3.Operation) []param {
	var list []param
	for _, ref := range slices.Concat(item.Parameters, op.Parameters) {
		p := ref.Value
		list = append(list, param{name: p.Name, in: p.In, required: p.Required, schema: p.Schema.Value})
	}
	body := bodyOf(op)
	if body == nil {
		return list
	}
	for name, ref := range body.Properties {
		if ref.Value.ReadOnly {
			continue // answers alone have it
		}
		p := param{name: name, in: "body", required: slices.Contains(body.Required, name), schema: ref.Value}
		if items := ref.Value.Items; items != nil && len(items.Value.Properties) > 0 {
			p.list = items.Value
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b param) int { return strings.Compare(a.name, b.name) })
	return list
}

// bodyOf returns the schema of the fields of a JSON body; nil when it has none.
func bodyOf(op *openapi3.Operation) *openapi3.Schema {
	if op.RequestBody == nil {
		return nil
	}
	media := op.RequestBody.Value.Content["application/json"]
	if media == nil {
		return nil
	}
	return media.Schema.Value
}

// fields lists what of a parameter is counted: itself and, where it is an object or an array
// of objects, their fields.
func (p param) fields() []string {
	names := []string{p.name}
	inner, mark := p.schema, "."
	if p.list != nil {
		inner, mark = p.list, "[]."
	}
	for name := range inner.Properties {
		names = append(names, p.name+mark+name)
	}
	slices.Sort(names)
	return names
}

// refused reports whether a parameter is one that the programs know and always refuse: the
// documented refusal counts as its success.
func (r *route) refused(name string) bool {
	return slices.ContainsFunc(r.params,
		func(p param) bool { return p.name == name && p.schema.Extensions["x-refused"] == true })
}

// counted lists what is counted of a route. The bodies of typed routes are spoken between
// our own programs; of those the outer fields count.
func (r *route) counted() []string {
	var names []string
	for _, p := range r.params {
		if r.typed {
			names = append(names, p.name)
			continue
		}
		names = append(names, p.fields()...)
	}
	return names
}

// strict forbids unknown fields wherever a schema names fields and does not allow others.
func strict(ref *openapi3.SchemaRef, seen map[*openapi3.Schema]bool) {
	if ref == nil || ref.Value == nil || seen[ref.Value] {
		return
	}
	s := ref.Value
	seen[s] = true
	if len(s.Properties) > 0 && s.AdditionalProperties.Has == nil && s.AdditionalProperties.Schema == nil {
		s.AdditionalProperties.Has = new(bool)
	}
	for _, p := range s.Properties {
		strict(p, seen)
	}
	for _, p := range slices.Concat(s.OneOf, s.AnyOf, s.AllOf) {
		strict(p, seen)
	}
	strict(s.Items, seen)
	strict(s.AdditionalProperties.Schema, seen)
}

// find returns the route of a request by its method and its path without the query.
func (s *spec) find(method, path string) *route {
	if method == "HEAD" {
		method = "GET"
	}
	if r := s.routes[method+" "+path]; r != nil {
		return r
	}
	for _, r := range s.routes {
		if r.method == method && strings.Contains(r.path, "{") && fits(r.path, path) {
			return r
		}
	}
	return nil
}

// fits reports whether a path is one of a pattern. The last name of one for files stands for
// the whole rest.
func fits(pattern, path string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, part := range want {
		named := strings.HasPrefix(part, "{")
		switch {
		case part == "{path}":
			return len(have) > i && have[i] != ""
		case i >= len(have), !named && part != have[i], named && have[i] == "":
			return false
		}
	}
	return len(want) == len(have)
}

// inPath returns the values of the names in a route's path.
func (r *route) inPath(path string) map[string]string {
	values := map[string]string{}
	have := strings.Split(path, "/")
	for i, part := range strings.Split(r.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok && i < len(have) {
			values[strings.TrimSuffix(name, "}")] = strings.Join(have[i:], "/")
			if part != "{path}" {
				values[strings.TrimSuffix(name, "}")] = have[i]
			}
		}
	}
	return values
}

// checkAnswer compares an answer with the file: its status, its type and its shape.
func (r *route) checkAnswer(code int, kind string, body []byte) []string {
	answer := answerOf(r.op, code)
	if answer == nil {
		return []string{fmt.Sprintf("the file has no answer with status %d", code)}
	}
	kind, _, _ = strings.Cut(kind, ";")
	if len(answer.Value.Content) == 0 {
		if len(body) > 0 {
			return []string{"the file has no body here"}
		}
		return nil
	}
	media := answer.Value.Content[kind]
	if media == nil {
		return []string{fmt.Sprintf("the file has no %q with status %d", kind, code)}
	}
	switch kind {
	case "application/json":
		if faults := checkJSON(media.Schema.Value, body); faults != nil {
			return faults
		}
		return checkWhole(answerOf(r.plain, code).Value.Content[kind].Schema.Value, body)
	case "application/x-ndjson":
		return checkLines(media.Schema.Value, body)
	}
	return nil
}

// answerOf returns the response of an operation with a status; nil when it has none.
func answerOf(op *openapi3.Operation, code int) *openapi3.ResponseRef {
	answer := op.Responses.Status(code)
	if answer == nil && code >= 400 {
		answer = op.Responses.Default()
	}
	return answer
}

// checkWhole validates a response as a client with a common validator does: against the schema as
// the file has it, of whose alternatives exactly one has to fit.
func checkWhole(schema *openapi3.Schema, body []byte) []string {
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return []string{"invalid JSON: " + err.Error()}
	}
	return check(schema, value)
}

// checkLines checks a stream of JSON objects; the last line may be cut off.
func checkLines(schema *openapi3.Schema, body []byte) (faults []string) {
	lines := strings.Split(string(body), "\n")
	for _, line := range lines[:len(lines)-1] {
		faults = append(faults, checkJSON(schema, []byte(line))...)
	}
	return faults
}

func checkJSON(schema *openapi3.Schema, body []byte) []string {
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return []string{"it is not a JSON: " + err.Error()}
	}
	return check(branch(schema, value), value)
}

// check validates a value and describes what is wrong in short lines.
func check(schema *openapi3.Schema, value any) []string {
	err := schema.VisitJSON(value, formats...)
	if err == nil {
		return nil
	}
	var faults []string
	for _, e := range flat(err) {
		faults = append(faults, e.Error())
	}
	return faults
}

// flat takes the errors of a validation apart.
func flat(err error) []error {
	if many, ok := err.(openapi3.MultiError); ok { //nolint:errorlint // the library's own list, never wrapped here
		var out []error
		for _, e := range many {
			out = append(out, flat(e)...)
		}
		return out
	}
	if one, ok := err.(*openapi3.SchemaError); ok { //nolint:errorlint // likewise
		return []error{fmt.Errorf("%s: %s (%s)", "/"+strings.Join(one.JSONPointer(), "/"), one.Reason,
			short(fmt.Sprint(one.Value), 80))}
	}
	return []error{err}
}

// branch returns the alternative of a schema that an envelope matches by its status, so that a
// fault is reported for that one alone.
func branch(schema *openapi3.Schema, value any) *openapi3.Schema {
	fields, _ := value.(map[string]any)
	for _, alternative := range schema.OneOf {
		status := alternative.Value.Properties["status"]
		if status != nil && slices.Contains(status.Value.Enum, fields["status"]) {
			return narrow(alternative.Value, fields["body"])
		}
	}
	return schema
}

// narrow returns an envelope whose body may only be of the alternative that has its JSON type.
func narrow(envelope *openapi3.Schema, body any) *openapi3.Schema {
	ref := envelope.Properties["body"]
	if ref == nil || len(ref.Value.OneOf) == 0 {
		return envelope
	}
	var same openapi3.SchemaRefs
	for _, alternative := range ref.Value.OneOf {
		if alternative.Value.Type.Is(kindOf(body)) {
			same = append(same, alternative)
		}
	}
	if len(same) != 1 {
		return envelope
	}
	only := *envelope
	only.Properties = openapi3.Schemas{
		"status": envelope.Properties["status"], "message": envelope.Properties["message"], "body": same[0],
	}
	return &only
}

// kindOf names the JSON type of a decoded value.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case []any:
		return "array"
	default:
		return "object"
	}
}

// short cuts a text for a message.
func short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:most] + "..."
}
