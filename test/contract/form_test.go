package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// theFile returns api/openapi.yaml as it is. Its examples were validated.
func theFile(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := readValid()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// verbs are the first words of operationIds.
var verbs = strings.Fields(`abort add append attach cancel change clear commit complete configure connect create delete
	disjoin distribute download end fill get join list log open pause poll prove redirect remove replace report resolve
	restart revert revoke save send set start stream terminate update upload watch`)

// operations returns the operations of the file by their operationIds; those without one are faults.
func operations(t *testing.T, doc *openapi3.T) map[string]string {
	t.Helper()
	ids := map[string]string{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			pattern := method + " " + path
			if ids[op.OperationID] != "" {
				t.Errorf("%s and %s have the operationId %q", pattern, ids[op.OperationID], op.OperationID)
			}
			ids[op.OperationID] = pattern
			if words := strings.Fields(op.Summary); len(words) < 2 || len(words) > 8 ||
				strings.HasSuffix(op.Summary, ".") {
				t.Errorf("%s: summary %q: want 2 to 8 words without a full stop", pattern, op.Summary)
			}
		}
	}
	return ids
}

// TestOperationIDs: every operation has a unique operationId of a verb and an object.
func TestOperationIDs(t *testing.T) {
	form, same := regexp.MustCompile(`^([a-z]+)([A-Z][a-z0-9]*)+$`), map[string]string{}
	ids := operations(t, theFile(t))
	for id, pattern := range ids {
		match := form.FindStringSubmatch(id)
		if match == nil || !slices.Contains(verbs, match[1]) {
			t.Errorf("%s: operationId %q: want a verb and an object in camel case", pattern, id)
		}
		low := strings.ToLower(id)
		if same[low] != "" {
			t.Errorf("the operationIds %s and %s differ in case alone", id, same[low])
		}
		same[low] = id
	}
	if len(ids) < 100 {
		t.Errorf("the file has %d operations", len(ids))
	}
}

// derived are the endings of the names that generators make for an operation.
var derived = []string{
	"", "request", "response", "params", "body", "jsonbody", "jsonrequestbody", "req", "res", "result",
}

// TestComponentNames: the names of components are unique in all kinds together, as generators make
// types of them in one name space, and differ from the names that they make for operations.
func TestComponentNames(t *testing.T) {
	doc := theFile(t)
	taken := map[string]string{}
	for id, pattern := range operations(t, doc) {
		for _, end := range derived {
			taken[strings.ToLower(id)+end] = "the operation " + pattern
		}
	}
	c := doc.Components
	for kind, names := range map[string][]string{
		"schema": slices.Collect(maps.Keys(c.Schemas)), "response": slices.Collect(maps.Keys(c.Responses)),
		"parameter":       slices.Collect(maps.Keys(c.Parameters)),
		"request body":    slices.Collect(maps.Keys(c.RequestBodies)),
		"header":          slices.Collect(maps.Keys(c.Headers)),
		"security scheme": slices.Collect(maps.Keys(c.SecuritySchemes)),
	} {
		for _, name := range names {
			low, what := strings.ToLower(name), fmt.Sprintf("the %s %s", kind, name)
			if taken[low] != "" {
				t.Errorf("%s has the name of %s", what, taken[low])
			}
			taken[low] = what
		}
	}
}

// TestAlternativesAreDistinct: of the alternatives of every oneOf and anyOf, a value fits at most
// one, which its JSON type or a required field of one value shows. It holds for any validator, also
// for one that allows unknown fields.
func TestAlternativesAreDistinct(t *testing.T) {
	doc, found := theFile(t), 0
	eachSchema(doc, func(where string, s *openapi3.Schema) {
		for _, list := range []openapi3.SchemaRefs{s.OneOf, s.AnyOf} {
			if len(list) == 0 {
				continue
			}
			found++
			if len(list) < 2 {
				t.Errorf("%s has one alternative", where)
			}
			for i, one := range list {
				for _, other := range list[:i] {
					if !distinct(one.Value, other.Value) {
						t.Errorf("%s: a value may fit both %s and %s", where, nameOf(one), nameOf(other))
					}
				}
			}
		}
		if d := s.Discriminator; d != nil && len(d.Mapping) != len(s.OneOf) {
			t.Errorf("%s: the discriminator maps %d of %d alternatives", where, len(d.Mapping), len(s.OneOf))
		}
		if s.Nullable && s.Type == nil {
			t.Errorf("%s is nullable without a type", where)
		}
	})
	if found < 10 {
		t.Errorf("%d schemas with alternatives were found", found)
	}
}

// TestDistinct: alternatives that overlap are found.
func TestDistinct(t *testing.T) {
	of := func(text string) *openapi3.Schema {
		s := &openapi3.Schema{}
		if err := s.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return s
	}
	object := func(required, values string) string {
		return `{"type":"object","required":` + required + `,"properties":{"s":{"enum":[` + values + `]}}}`
	}
	for _, c := range []struct {
		one, other string
		want       bool
	}{
		{`{"type":"array"}`, `{"type":"object"}`, true},
		// the empty one
		{`{"type":"array","items":{"type":"string"}}`, `{"type":"array","items":{"type":"object"}}`, false},
		{`{"type":"integer"}`, `{"type":"number"}`, false},
		{`{"type":"string"}`, `{"type":"integer"}`, true},
		{`{"type":"string","nullable":true}`, `{"type":"integer","nullable":true}`, false},
		{`{}`, `{"type":"integer"}`, false},
		{object(`["s"]`, `"a"`), object(`["s"]`, `"b"`), true},
		{object(`[]`, `"a"`), object(`["s"]`, `"b"`), false},
		{object(`["s"]`, `"a"`), object(`["s"]`, `"a","b"`), false},
	} {
		if got := distinct(of(c.one), of(c.other)); got != c.want {
			t.Errorf("%s and %s: distinct is %v", c.one, c.other, got)
		}
	}
}

// distinct reports whether no value fits both schemas.
func distinct(a, b *openapi3.Schema) bool {
	if a.Type == nil || b.Type == nil || a.Nullable && b.Nullable {
		return false
	}
	if kinds := []string{typeName(a), typeName(b)}; kinds[0] != kinds[1] {
		return true
	}
	for name, field := range a.Properties {
		other := b.Properties[name]
		if other == nil || !slices.Contains(a.Required, name) || !slices.Contains(b.Required, name) {
			continue
		}
		one, two := field.Value.Enum, other.Value.Enum
		if len(one) > 0 && len(two) > 0 &&
			!slices.ContainsFunc(one, func(v any) bool { return slices.Contains(two, v) }) {
			return true
		}
	}
	return false
}

// typeName is the JSON type of a schema: integers are numbers.
func typeName(s *openapi3.Schema) string {
	if s.Type.Is("integer") {
		return "number"
	}
	return strings.Join(s.Type.Slice(), " ")
}

func nameOf(ref *openapi3.SchemaRef) string {
	if ref.Ref != "" {
		return ref.Ref
	}
	return strings.Join(ref.Value.Type.Slice(), " ")
}

// eachSchema calls f with every schema of the file once.
func eachSchema(doc *openapi3.T, f func(where string, s *openapi3.Schema)) {
	w := schemaWalk{seen: map[*openapi3.Schema]bool{}, each: f}
	for name, ref := range doc.Components.Schemas {
		w.walk(name, ref)
	}
	for name, ref := range doc.Components.Responses {
		w.content(name, ref.Value.Content)
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			where := method + " " + path
			for _, p := range slices.Concat(item.Parameters, op.Parameters) {
				w.walk(where+" "+p.Value.Name, p.Value.Schema)
			}
			if op.RequestBody != nil {
				w.content(where+" request", op.RequestBody.Value.Content)
			}
			for code, response := range op.Responses.Map() {
				w.content(where+" "+code, response.Value.Content)
			}
		}
	}
}

type schemaWalk struct {
	seen map[*openapi3.Schema]bool
	each func(string, *openapi3.Schema)
}

func (w schemaWalk) content(where string, content openapi3.Content) {
	for _, media := range content {
		w.walk(where, media.Schema)
	}
}

func (w schemaWalk) walk(where string, ref *openapi3.SchemaRef) {
	if ref == nil || w.seen[ref.Value] {
		return
	}
	s := ref.Value
	w.seen[s] = true
	w.each(where, s)
	for name, field := range s.Properties {
		w.walk(where+"."+name, field)
	}
	for _, one := range slices.Concat(s.OneOf, s.AnyOf, s.AllOf) {
		w.walk(where, one)
	}
	w.walk(where+"[]", s.Items)
	w.walk(where+"{}", s.AdditionalProperties.Schema)
}

// TestRecordedResponses: every response of the file that a run with -record wrote validates, as
// strictly as in a run, and as a common validator does it.
func TestRecordedResponses(t *testing.T) {
	raw, err := os.ReadFile("testdata/responses.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	s, met := theSpec(t), 0
	for line := range strings.Lines(string(raw)) {
		var one recordedResponse
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		r := s.routes[one.Route]
		if r == nil {
			t.Errorf("%s is not in the file", one.Route)
			continue
		}
		met++
		for _, fault := range r.checkAnswer(one.Status, "application/json", one.Body) {
			t.Errorf("%s %d: %s\n%s", one.Route, one.Status, fault, short(string(one.Body), 300))
		}
	}
	if met < 50 {
		t.Errorf("%d responses are recorded", met)
	}
}
