package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// prefix starts the name of every setting.
const prefix = "SVC_"

// refuseUnknown returns an error for a variable of the environment that looks like a setting and is
// not one of the service's. The settings of commands are for the commands, and are ignored.
func refuseUnknown(table Table, vars []string) error {
	for _, key := range svcKeys(vars) {
		if ClientTable.knows(key) {
			continue
		}
		if err := table.check(key); err != nil {
			return fmt.Errorf("%w (%s)", err, originOf(Setting{}, value{origin: FromEnv}))
		}
	}
	return nil
}

// svcKeys returns the sorted names of the variables that look like settings and are not empty.
func svcKeys(vars []string) []string {
	var keys []string
	for _, v := range vars {
		if key, text, _ := strings.Cut(v, "="); text != "" && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// check returns an error for a key that looks like a setting but is not in the table.
func (t Table) check(key string) error {
	if !strings.HasPrefix(key, prefix) || t.knows(key) {
		return nil
	}
	if owner := ownerOf(key); owner != "" {
		return fmt.Errorf("%s is a setting of %s and has no effect here; remove it", key, owner)
	}
	if near := t.nearest(key); near != "" {
		return fmt.Errorf("unknown setting %s; did you mean %s?", key, near)
	}
	return fmt.Errorf("unknown setting %s; see --print-config", key)
}

// ownerOf returns the program that a setting belongs to; "" when there is none.
func ownerOf(key string) string {
	switch {
	case ControllerTable.knows(key):
		return "the controller"
	case RegistryTable.knows(key):
		return "the registry"
	case ClientTable.knows(key):
		return "the client commands"
	}
	return ""
}

// knows reports whether a key is a setting of the table, names the file of one of its
// secrets, or is an unsupported setting, which has a separate error.
func (t Table) knows(key string) bool {
	if slices.Contains(t.names(), key) {
		return true
	}
	_, ok := unsupported(key)
	return ok
}

// names returns every name that the table accepts in the environment and in the file.
func (t Table) names() []string {
	var names []string
	for _, s := range t {
		names = append(names, s.Key)
		if s.Also != "" {
			names = append(names, s.Also)
		}
		if s.Kind.secret() {
			names = append(names, s.Key+fileSuffix)
		}
	}
	return names
}

// nearest returns the name that a misspelled key most likely meant; "" when none is similar.
func (t Table) nearest(key string) string {
	best, least := "", len(key)-len(prefix)
	for _, name := range t.names() {
		// At most a third of a name may differ.
		if d := distance(key, name); d < least && 3*d <= len(name)-len(prefix)+2 {
			best, least = name, d
		}
	}
	return best
}

// distance returns how many bytes must be inserted, removed or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// defaultsWithoutAuth replaces the defaults of settings that have another one while
// authentication is off.
func (v *Values) defaultsWithoutAuth() {
	if auth, ok := v.values[EnableAuth]; !ok || must(strconv.ParseBool(auth.text)) {
		return
	}
	for _, s := range v.table {
		if s.NoAuth != "" && v.values[s.Key].origin == FromDefault {
			v.values[s.Key] = value{s.NoAuth, FromDefault}
		}
	}
}
