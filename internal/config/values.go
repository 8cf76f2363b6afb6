package config

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Values are the checked settings of one service. They never change.
type Values struct {
	table  Table
	values map[string]value
}

// get returns the text of a setting. A key that the table does not declare, or declares
// with another kind, is an error of the program and panics.
func (v *Values) get(key string, allowed ...Kind) string {
	s, ok := v.table.find(key)
	if !ok {
		panic("config: undeclared setting " + key)
	}
	if !slices.Contains(allowed, s.Kind) {
		panic("config: setting " + key + " is a " + kinds[s.Kind].name)
	}
	return v.values[key].text
}

// mustParse is for parsers of values that Load has already checked.
func mustParse[T any](parsed T, err error) T {
	if err != nil {
		panic("config: unchecked value: " + err.Error())
	}
	return parsed
}

// String returns a setting of kind String, Addr, Path, Secret or SecretText; "" when it has no value.
func (v *Values) String(key string) string { return v.get(key, String, Addr, Path, Secret, SecretText) }

// Int returns a setting of kind Int.
func (v *Values) Int(key string) int { return mustParse(strconv.Atoi(v.get(key, Int))) }

// Bool returns a setting of kind Bool.
func (v *Values) Bool(key string) bool { return mustParse(strconv.ParseBool(v.get(key, Bool))) }

// Duration returns a setting of kind Duration; it is never negative.
func (v *Values) Duration(key string) time.Duration {
	return mustParse(ParseDuration(v.get(key, Duration)))
}

// Size returns a setting of kind Size, in bytes.
func (v *Values) Size(key string) int64 { return mustParse(ParseSize(v.get(key, Size))) }

// Days returns a setting of kind Days; it is never negative.
func (v *Values) Days(key string) time.Duration { return mustParse(ParseDays(v.get(key, Days))) }

// Megabytes returns a setting of kind Megabytes, in bytes.
func (v *Values) Megabytes(key string) int64 { return mustParse(ParseMegabytes(v.get(key, Megabytes))) }

// List returns a setting of kind List; nil when it has no element.
func (v *Values) List(key string) []string { return parseList(v.get(key, List)) }

// Origin returns where the value of a declared setting came from.
func (v *Values) Origin(key string) Origin {
	if _, ok := v.table.find(key); !ok {
		panic("config: undeclared setting " + key)
	}
	return v.values[key].origin
}

// Secrets returns the values of all secrets, so that they can be masked in other texts.
func (v *Values) Secrets() (list []string) {
	for _, s := range v.table {
		if text := v.values[s.Key].text; s.Kind.isSecret() && text != "" {
			list = append(list, text)
		}
	}
	return list
}

// Print writes every setting as a line of a configuration file, with its origin as a comment.
// Secrets are masked, so that the text need not be kept secret.
func (v *Values) Print(w io.Writer) error {
	out := bufio.NewWriter(w)
	for _, s := range v.table {
		found := v.values[s.Key]
		text := Quote(found.text)
		if s.Kind.isSecret() && found.text != "" {
			text = secretMask
		}
		fmt.Fprintf(out, "%s=%s # %s\n", s.Key, text, found.origin)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("print the settings: %w", err)
	}
	return nil
}

// Quote writes a value so that parseFile reads the same one.
func Quote(text string) string {
	if !strings.ContainsAny(text, " \t\"'#\\") && strings.TrimSpace(text) == text {
		return text
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}
