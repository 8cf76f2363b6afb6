package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Unsupported is a setting that clients of this API family know and this program does not support
// yet. It is rejected at startup: the service must not differ from the requested one.
type Unsupported struct {
	Key     string // a trailing * matches any suffix
	Feature string // name of the feature
	Already string // the value that equals the current behavior; "" for none
}

// objectStore is the name of an unsupported feature in errors.
const objectStore = "registry storage on S3"

// AllUnbuilt lists the unsupported settings. A setting moves from here to a service's table when it
// is built.
var AllUnbuilt = []Unsupported{
	{Key: "SVC_BACKEND_TYPE", Feature: objectStore, Already: "disk"},
	{Key: "SVC_BACKEND_S3_*", Feature: objectStore},
}

// unsupported finds the entry of a key, which may also name the file of a secret.
func unsupported(key string) (Unsupported, bool) {
	for _, u := range AllUnbuilt {
		prefix, open := strings.CutSuffix(u.Key, "*")
		if key == u.Key || key == u.Key+fileSuffix || (open && strings.HasPrefix(key, prefix)) {
			return u, true
		}
	}
	return Unsupported{}, false
}

// refuseUnsupported returns the error for a given setting that the program cannot honor. Open
// endings are found in the file and in vars, the whole environment.
func (l *loader) refuseUnsupported(table Table, vars []string) error {
	keys := svcKeys(vars)
	for _, u := range AllUnbuilt {
		keys = append(keys, u.Key, u.Key+fileSuffix)
	}
	keys = append(keys, slices.Sorted(maps.Keys(l.file))...)
	for _, key := range keys {
		u, ok := unsupported(key)
		if !ok || table.declares(key) {
			continue
		}
		for _, origin := range []Origin{FromEnv, FromFile} {
			text := l.lookup(key, origin)
			if text == "" || u.already(text) {
				continue
			}
			return fmt.Errorf("%s is set, but %s is not supported by this version; remove the setting (%s)",
				key, u.Feature, originOf(Setting{}, value{origin: origin}))
		}
	}
	return nil
}

// declares reports whether a key, or the secret whose file it names, is in the table.
func (t Table) declares(key string) bool {
	if _, ok := t.find(key); ok {
		return true
	}
	_, ok := t.find(strings.TrimSuffix(key, fileSuffix))
	return ok
}

// already reports whether a value equals the current behavior.
func (u Unsupported) already(text string) bool {
	if u.Already == "" {
		return false
	}
	want, err := strconv.ParseBool(u.Already)
	if err != nil {
		return text == u.Already
	}
	got, err := strconv.ParseBool(text)
	return err == nil && got == want
}
