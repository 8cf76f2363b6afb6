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
	Key          string // a trailing * matches any suffix
	Feature      string // name of the feature
	CurrentValue string // the value that equals the current behavior; "" for none
}

// objectStore is the name of an unsupported feature in errors.
const objectStore = "registry storage on S3"

// AllUnsupported lists the unsupported settings. A setting moves from here to a service's table when it
// is built.
var AllUnsupported = []Unsupported{
	{Key: "SVC_BACKEND_TYPE", Feature: objectStore, CurrentValue: "disk"},
	{Key: "SVC_BACKEND_S3_*", Feature: objectStore},
}

// findUnsupported finds the entry of a key, which may also name the file of a secret.
func findUnsupported(key string) (Unsupported, bool) {
	for _, u := range AllUnsupported {
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
	for _, u := range AllUnsupported {
		keys = append(keys, u.Key, u.Key+fileSuffix)
	}
	keys = append(keys, slices.Sorted(maps.Keys(l.file))...)
	for _, key := range keys {
		u, ok := findUnsupported(key)
		if !ok || table.declaresSecretFile(key) {
			continue
		}
		for _, origin := range []Origin{FromEnv, FromFile} {
			text := l.lookup(key, origin)
			if text == "" || u.isCurrentValue(text) {
				continue
			}
			return fmt.Errorf("%s is set, but %s is not supported by this version; remove the setting (%s)",
				key, u.Feature, originOf(Setting{}, value{origin: origin}))
		}
	}
	return nil
}

// declaresSecretFile reports whether a key, or the secret whose file it names, is in the table.
func (t Table) declaresSecretFile(key string) bool {
	if _, ok := t.find(key); ok {
		return true
	}
	_, ok := t.find(strings.TrimSuffix(key, fileSuffix))
	return ok
}

// isCurrentValue reports whether a value equals the current behavior.
func (u Unsupported) isCurrentValue(text string) bool {
	if u.CurrentValue == "" {
		return false
	}
	want, err := strconv.ParseBool(u.CurrentValue)
	if err != nil {
		return text == u.CurrentValue
	}
	got, err := strconv.ParseBool(text)
	return err == nil && got == want
}
