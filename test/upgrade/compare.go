package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
)

// missingIn returns an error for everything of before that now does not have. Fields may be added.
// Lists are compared in any order when their items have identities. Paths that match ignored are
// left out; nil: none.
func missingIn(before, now any, ignored *regexp.Regexp) error {
	return errors.Join(differences("", before, now, ignored)...)
}

func differences(path string, before, now any, ignored *regexp.Regexp) (errs []error) {
	if ignored != nil && ignored.MatchString(path) {
		return nil
	}
	switch b := before.(type) {
	case map[string]any:
		n, ok := now.(map[string]any)
		if !ok {
			return []error{fmt.Errorf("%s is %s, before %s", path, short(now), short(before))}
		}
		for key, value := range b {
			other, ok := n[key]
			if !ok && !(ignored != nil && ignored.MatchString(path+"."+key)) {
				errs = append(errs, fmt.Errorf("%s.%s is missing, before %s", path, key, short(value)))
				continue
			}
			errs = append(errs, differences(path+"."+key, value, other, ignored)...)
		}
		return errs
	case []any:
		n, ok := now.([]any)
		if !ok || len(n) != len(b) {
			return []error{fmt.Errorf("%s is %s, before %s", path, short(now), short(before))}
		}
		b, n = sorted(b), sorted(n)
		for i := range b {
			errs = append(errs, differences(path+"[]", b[i], n[i], ignored)...)
		}
		return errs
	}
	if !reflect.DeepEqual(before, now) {
		return []error{fmt.Errorf("%s is %s, before %s", path, short(now), short(before))}
	}
	return nil
}

// identities are fields by which items of a list are told apart.
var identities = []string{"mac_address", "instance_id", "node_id", "request_id", "id", "name"}

// sorted orders a list by the identities of its items.
func sorted(list []any) []any {
	key := func(v any) string {
		fields, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		for _, name := range identities {
			if text, ok := fields[name].(string); ok {
				return text
			}
		}
		return ""
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b any) int {
		ka, kb := key(a), key(b)
		switch {
		case ka < kb:
			return -1
		case ka > kb:
			return 1
		}
		return 0
	})
	return list
}

// short is a value as JSON, cut.
func short(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if len(raw) > 300 {
		return string(raw[:300]) + "..."
	}
	return string(raw)
}
