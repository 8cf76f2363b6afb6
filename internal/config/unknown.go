package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// settingPrefix starts the name of every setting.
const settingPrefix = "SVC_"

// refuseUnknown returns an error for a variable of the environment that looks like a setting and is
// not one of the service's. The settings of commands are for the commands, and are ignored.
func refuseUnknown(table Table, vars []string) error {
	for _, key := range svcKeys(vars) {
		if ClientTable.acceptsKey(key) {
			continue
		}
		if err := table.checkKey(key); err != nil {
			return fmt.Errorf("%w (%s)", err, originOf(Setting{}, value{origin: FromEnv}))
		}
	}
	return nil
}

// svcKeys returns the sorted names of the variables that look like settings and are not empty.
func svcKeys(vars []string) []string {
	var keys []string
	for _, v := range vars {
		if key, text, _ := strings.Cut(v, "="); text != "" && strings.HasPrefix(key, settingPrefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// checkKey returns an error for a key that looks like a setting but is not in the table.
func (t Table) checkKey(key string) error {
	if !strings.HasPrefix(key, settingPrefix) || t.acceptsKey(key) {
		return nil
	}
	if owner := ownerOf(key); owner != "" {
		return fmt.Errorf("%s is a setting of %s and has no effect here; remove it", key, owner)
	}
	if near := t.nearestName(key); near != "" {
		return fmt.Errorf("unknown setting %s; did you mean %s?", key, near)
	}
	return fmt.Errorf("unknown setting %s; see --print-config", key)
}

// ownerOf returns the program that a setting belongs to; "" when there is none.
func ownerOf(key string) string {
	switch {
	case ControllerTable.acceptsKey(key):
		return "the controller"
	case RegistryTable.acceptsKey(key):
		return "the registry"
	case ClientTable.acceptsKey(key):
		return "the client commands"
	}
	return ""
}

// acceptsKey reports whether a key is a setting of the table, or names the file of one of its secrets.
func (t Table) acceptsKey(key string) bool { return slices.Contains(t.acceptedNames(), key) }

// acceptedNames returns every name that the table accepts in the environment and in the file.
func (t Table) acceptedNames() []string {
	var names []string
	for _, s := range t {
		names = append(names, s.Key)
		if s.Alias != "" {
			names = append(names, s.Alias)
		}
		if s.Kind.isSecret() {
			names = append(names, s.Key+fileSuffix)
		}
	}
	return names
}

// nearestName returns the name that a misspelled key most likely meant; "" when none is similar.
func (t Table) nearestName(key string) string {
	best, least := "", len(key)-len(settingPrefix)
	for _, name := range t.acceptedNames() {
		// At most a third of a name may differ.
		if d := editDistance(key, name); d < least && 3*d <= len(name)-len(settingPrefix)+2 {
			best, least = name, d
		}
	}
	return best
}

// editDistance returns how many bytes must be inserted, removed or replaced to make b of a.
func editDistance(a, b string) int {
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
	if auth, ok := v.values[EnableAuth]; !ok || mustParse(strconv.ParseBool(auth.text)) {
		return
	}
	for _, s := range v.table {
		if s.NoAuthDefault != "" && v.values[s.Key].origin == FromDefault {
			v.values[s.Key] = value{s.NoAuthDefault, FromDefault}
		}
	}
}
