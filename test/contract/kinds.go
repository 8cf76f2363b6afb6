package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// jsonTypes records the JSON type of each field of each answer. null in addition to another type is
// left to the file, which defines where null is allowed.
type jsonTypes struct {
	mu   sync.Mutex
	seen map[string]map[string]string // route and field -> type -> the case that met it first
}

// many are the fields that have several types by the contract: values of a caller's metadata,
// configurations that the registry stores unchanged, answers whose shape follows from the
// parameters.
var many = []string{".metadata.", ".config.", ".nvram", "GET /registry/vm/info .body", "GET /api/v1/macaddr .body"}

// shaped are the routes whose body is an array without an id and an object with one.
func shaped(pattern, field string) bool {
	return field == ".body" && strings.HasPrefix(pattern, "GET ")
}

// note records the types of an answer.
func (k *jsonTypes) note(pattern, who string, value any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen == nil {
		k.seen = map[string]map[string]string{}
	}
	k.walk(pattern, "", who, value)
}

func (k *jsonTypes) walk(pattern, field, who string, value any) {
	key := pattern + " " + field
	kind := kindOf(value)
	if kind != "null" && !shaped(pattern, field) {
		if k.seen[key] == nil {
			k.seen[key] = map[string]string{}
		}
		if k.seen[key][kind] == "" {
			k.seen[key][kind] = who
		}
	}
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			k.walk(pattern, field+"."+name, who, inner)
		}
	case []any:
		for _, inner := range v {
			k.walk(pattern, field+"[]", who, inner)
		}
	}
}

// faults lists the fields that were of more than one type.
func (k *jsonTypes) faults() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []string
	for _, key := range slices.Sorted(maps.Keys(k.seen)) {
		types := k.seen[key]
		if len(types) < 2 || slices.ContainsFunc(many, func(m string) bool { return strings.Contains(key, m) }) {
			continue
		}
		var text []string
		for _, kind := range slices.Sorted(maps.Keys(types)) {
			text = append(text, fmt.Sprintf("%s in %q", kind, types[kind]))
		}
		out = append(out, key+" is "+strings.Join(text, " and "))
	}
	return out
}
