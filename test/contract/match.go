package main

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// at returns what is at a path of a JSON value: names and indexes between dots, name=value for
// the element of an array that has this field. "" is the value itself.
func at(value any, path string) (any, bool) {
	if path == "" {
		return value, true
	}
	part, rest, _ := strings.Cut(path, "/")
	switch v := value.(type) {
	case map[string]any:
		inner, ok := v[part]
		if !ok {
			return nil, false
		}
		return at(inner, rest)
	case []any:
		if name, want, ok := strings.Cut(part, "="); ok {
			for _, item := range v {
				if got, found := at(item, name); found && fmt.Sprint(got) == want {
					return at(item, rest)
				}
			}
			return nil, false
		}
		i, err := strconv.Atoi(part)
		if err != nil || i >= len(v) || -i > len(v) {
			return nil, false
		}
		if i < 0 {
			i += len(v)
		}
		return at(v[i], rest)
	}
	return nil, false
}

// differs describes how a value is not as expected; "" when it is. The paths of want are those of
// at; a value of want is the JSON value itself or a text that begins with a mark: "~" a regular
// expression, "!absent", "!present", "!null", "!len N", "!least N", or a key of the map below.
func differs(value any, want map[string]any) string {
	for _, path := range slices.Sorted(maps.Keys(want)) {
		got, found := at(value, path)
		if fault := matches(got, found, want[path]); fault != "" {
			return fmt.Sprintf("%s %s", "body/"+path, fault)
		}
	}
	return ""
}

func matches(got any, found bool, want any) string {
	text, _ := want.(string)
	mark, arg, _ := strings.Cut(text, " ")
	switch mark {
	case "!absent":
		if found {
			return fmt.Sprintf("is there: %v", got)
		}
		return ""
	case "!present":
		if !found || got == nil {
			return "is not there"
		}
		return ""
	case "!null":
		if !found || got != nil {
			return fmt.Sprintf("is %v and not null", got)
		}
		return ""
	case "!len", "!least":
		list, ok := got.([]any)
		n, _ := strconv.Atoi(arg)
		if fields, isMap := got.(map[string]any); isMap {
			list, ok = make([]any, len(fields)), true
		}
		if !ok || len(list) != n && (mark == "!len" || len(list) < n) {
			return fmt.Sprintf("has %d elements: %s", len(list), short(fmt.Sprint(got), 200))
		}
		return ""
	}
	if compare := matchers[mark]; compare != nil {
		if !compare(got, arg) {
			return "is " + short(fmt.Sprint(got), 200)
		}
		return ""
	}
	if !found {
		return "is not there"
	}
	if pattern, ok := strings.CutPrefix(text, "~"); ok {
		if s, isText := got.(string); !isText || !regexp.MustCompile(pattern).MatchString(s) {
			return fmt.Sprintf("is %q", got)
		}
		return ""
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("is %v and not %v", short(fmt.Sprint(got), 200), want)
	}
	return ""
}

// matchers are the expectations that depend on the value and their argument alone.
var matchers = map[string]func(got any, arg string) bool{
	"!above": func(got any, arg string) bool { // N: it is a greater number
		n, _ := strconv.ParseFloat(arg, 64)
		f, ok := got.(float64)
		return ok && f > n
	},
	"!has": func(got any, arg string) bool { // V: the array has the element
		list, _ := got.([]any)
		return slices.ContainsFunc(list, func(v any) bool { return fmt.Sprint(v) == arg })
	},
	"!other": func(got any, arg string) bool { // V: it is a text, and another one
		text, ok := got.(string)
		return ok && text != arg
	},
	"!keys": func(got any, arg string) bool { // A B: the object has these fields and no others
		fields, _ := got.(map[string]any)
		return slices.Equal(slices.Sorted(maps.Keys(fields)), slices.Sorted(strings.FieldsSeq(arg)))
	},
	"!bytes": func(got any, arg string) bool { // LO HI: the length of the text
		text, ok := got.(string)
		var lo, hi int
		_, err := fmt.Sscan(arg, &lo, &hi)
		return ok && err == nil && len(text) >= lo && len(text) <= hi
	},
}
