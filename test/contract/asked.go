package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// asked is the content of a request, by the names of the file, as the file defines the reading of
// requests: the place of a parameter does not matter, nor whether an integer was a string.
type asked struct {
	values map[string]any
	faults []string // violations of the file's form
}

// read returns the content of a request.
func (r *route) read(path string, query url.Values, header http.Header, body []byte) asked {
	a := asked{values: map[string]any{}}
	fields := map[string]any{}
	if r.bodied() || len(body) > 0 {
		a.readBody(r, body, fields)
	}
	inPath := r.inPath(path)
	for _, p := range r.params {
		var value any
		switch {
		case p.in == "path":
			value = inPath[p.name]
		case p.in == "header":
			value = inHeader(header, p.name)
		case fields[p.name] != nil:
			value = fields[p.name]
		case has(fields, p.name): // null: not given, the query is not used either
		case query.Has(p.name) && p.schema.Type.Is("array"):
			value = list(query[p.name])
		case query.Has(p.name):
			value = query.Get(p.name)
		}
		if value = tidy(p, value); value == nil && r.typed {
			value = fields[p.name]
		}
		if value == nil {
			if p.required {
				a.faults = append(a.faults, p.name+": it is required")
			}
			continue
		}
		a.values[p.name] = value
		for _, fault := range check(p.schema, value) {
			a.faults = append(a.faults, p.name+": "+fault)
		}
	}
	return a
}

// inHeader returns the value of a header; nil when it is not there.
func inHeader(header http.Header, name string) any {
	if values := header.Values(name); len(values) > 0 {
		return values[0]
	}
	return nil
}

// bodied reports whether the JSON body of a request of the route is read.
func (r *route) bodied() bool {
	return r.op.RequestBody == nil || r.op.RequestBody.Value.Content["application/json"] != nil
}

func (a *asked) readBody(r *route, body []byte, fields map[string]any) {
	if !r.bodied() || len(strings.TrimSpace(string(body))) == 0 {
		return
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		a.faults = append(a.faults, "body: "+err.Error())
		return
	}
	switch value := value.(type) {
	case map[string]any:
		maps.Copy(fields, value)
	case nil:
	case []any: // some typed routes accept several objects in one request
		first, ok := map[string]any{}, r.typed && len(value) > 0
		if ok {
			first, ok = value[0].(map[string]any)
		}
		if !ok {
			a.faults = append(a.faults, "body: it is not an object")
		}
		maps.Copy(fields, first)
	default:
		a.faults = append(a.faults, "body: it is not an object")
	}
}

func has(fields map[string]any, name string) bool { _, ok := fields[name]; return ok }

func list(values []string) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}

// tidy returns a value as the file would have it: nothing for "" and null, numbers for their
// strings.
func tidy(p param, value any) any {
	switch v := value.(type) {
	case string:
		if v == "" && p.in != "header" {
			return nil
		}
		return typed(p.schema.Type.Is("integer"), p.schema.Type.Is("boolean"), v)
	case float64, bool:
		if p.in == "query" && p.schema.Type.Is("string") && p.schema.Enum != nil {
			return fmt.Sprint(v)
		}
	case map[string]any:
		for name, ref := range p.schema.Properties {
			tidyField(v, param{name: name, schema: ref.Value})
		}
	case []any:
		if p.list == nil {
			break
		}
		for _, item := range v {
			object, _ := item.(map[string]any)
			for name, ref := range p.list.Properties {
				tidyField(object, param{name: name, schema: ref.Value})
			}
		}
	}
	return value
}

func tidyField(object map[string]any, p param) {
	before, ok := object[p.name]
	if !ok {
		return
	}
	if after := tidy(p, before); after == nil {
		delete(object, p.name)
	} else {
		object[p.name] = after
	}
}

// typed reads the number or the truth value that a string holds, where one is wanted.
func typed(integer, boolean bool, text string) any {
	if n, err := strconv.ParseFloat(strings.TrimSpace(text), 64); integer && err == nil {
		return n
	}
	if boolean && (text == "true" || text == "false") {
		return text == "true"
	}
	return text
}

// given lists what is counted of what was asked for: parameters, and the fields of those
// that have fields.
func (a asked) given(r *route) []string {
	var names []string
	for _, p := range r.params {
		value, ok := a.values[p.name]
		if !ok {
			continue
		}
		names = append(names, p.name)
		switch v := value.(type) {
		case map[string]any:
			for field := range v {
				names = append(names, p.name+"."+field)
			}
		case []any:
			for _, item := range v {
				object, _ := item.(map[string]any)
				for field := range object {
					names = append(names, p.name+"[]."+field)
				}
			}
		}
	}
	return names
}
