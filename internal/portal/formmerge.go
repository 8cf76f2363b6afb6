package portal

import (
	"net/url"
	"slices"
	"strings"
)

// A form may be open while another user changes the same record. So it also sends the values that
// it has shown, in fields named was_NAME, and only fields that differ from them are applied: all
// others keep their current values. A form without these fields is applied as a whole.

// isFieldChanged reports whether a field of a form was changed by the user.
func isFieldChanged(q url.Values, name string) bool {
	return q.Has(name) &&
		(!q.Has("was_"+name) || strings.TrimSpace(q.Get(name)) != strings.TrimSpace(q.Get("was_"+name)))
}

// rebaseSelection applies the changes of a form to the current list: without what was removed from the list
// that the form has shown and with what was added to that.
func rebaseSelection(q url.Values, name string, now, chosen []string) []string {
	if !q.Has("was_" + name) {
		return chosen
	}
	was := splitNames(q.Get("was_" + name))
	all := slices.DeleteFunc(slices.Clone(now),
		func(x string) bool { return slices.Contains(was, x) && !slices.Contains(chosen, x) })
	for _, x := range chosen {
		if !slices.Contains(was, x) && !slices.Contains(all, x) {
			all = append(all, x)
		}
	}
	return all
}

// splitNames reads names with commas between them.
func splitNames(text string) []string {
	names := []string{}
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}
