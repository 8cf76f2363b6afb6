package logparse

import (
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	maxConditions = 16
	maxTextBytes  = 256
)

// Filter selects entries. The zero value selects all.
type Filter struct {
	Level  string // the lowest level; entries without a level do not match; "": any
	Fields []Condition
	Text   string    // is in the row, in any case; "": any
	Since  time.Time // entries of that time or later; zero: any
	Until  time.Time // entries before that time; zero: any
}

// Condition requires a value of a field. Key and value are compared exactly; machine, host and level are fields, too.
type Condition struct{ Key, Value string }

// severity orders the levels.
var severity = map[string]int{api.LogDebug: 1, api.LogInfo: 2, api.LogWarn: 3, api.LogError: 4}

// ParseFilter checks the parameters of a request: level, conditions "key=value" and a text.
func ParseFilter(minLevel string, conditions []string, text string) (f Filter, err error) {
	if minLevel != "" {
		if f.Level = level(minLevel); f.Level == "" {
			return f, farm.Invalid("level", "must be debug, info, warn or error")
		}
	}
	if len(conditions) > maxConditions {
		return f, farm.Invalid("field", "must occur at most %d times", maxConditions)
	}
	for _, one := range conditions {
		key, value, ok := strings.Cut(one, "=")
		if !ok || key == "" || len(one) > maxTextBytes {
			return f, farm.Invalid("field", "must be key=value with at most %d bytes", maxTextBytes)
		}
		f.Fields = append(f.Fields, Condition{key, value})
	}
	if len(text) > maxTextBytes {
		return f, farm.Invalid("q", "must have at most %d bytes", maxTextBytes)
	}
	f.Text = strings.ToLower(text)
	return f, nil
}

// IsZero reports whether the filter selects all entries.
func (f Filter) IsZero() bool {
	return f.Level == "" && len(f.Fields) == 0 && f.Text == "" && f.Since.IsZero() && f.Until.IsZero()
}

// Match reports whether the filter selects an entry.
func (f Filter) Match(e api.LogEntry) bool {
	switch {
	case f.Level != "" && severity[e.Level] < severity[f.Level]:
		return false
	case !f.Since.IsZero() && e.Time.Before(f.Since), !f.Until.IsZero() && !e.Time.Before(f.Until):
		return false
	case f.Text != "" && !strings.Contains(strings.ToLower(e.Raw), f.Text):
		return false
	}
	for _, c := range f.Fields {
		if value, ok := fieldOf(e, c.Key); !ok || value != c.Value {
			return false
		}
	}
	return true
}

// fieldOf returns the value of a field.
func fieldOf(e api.LogEntry, key string) (value string, ok bool) {
	if value, ok = e.Fields[key]; ok {
		return value, true
	}
	switch key {
	case "machine":
		return e.MachineName, true
	case "host":
		return e.Host, true
	case "level":
		return e.Level, true
	default:
		return "", false
	}
}
