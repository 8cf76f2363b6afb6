package logparse

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
)

const (
	maxFields = 64
	maxDepth  = 4        // of nested objects, whose keys are joined by dots
	maxRow    = 70 << 10 // bytes that are parsed; a row of the central logs is shorter
)

// Names of the keys that are not fields.
var (
	levelKeys   = []string{"level", "lvl", "severity"}
	messageKeys = []string{"msg", "message"}
)

// Row returns the parts of a line of a log file of a service, without its line end. isEvent: it is one of
// the event log, which has no time, machine and host before the content.
func Row(service, line string, isEvent bool) api.LogEntry {
	entry := api.LogEntry{Service: service, Raw: line}
	content := line
	if !isEvent {
		content = readPrefix(&entry, line)
	}
	if len(content) > maxRow {
		entry.Message = content
		return entry
	}
	trimmed := strings.TrimSpace(content)
	for _, parse := range []func(*api.LogEntry, string) bool{parseJSON, parseKlog, parseLogfmt} {
		if parse(&entry, trimmed) {
			return entry
		}
	}
	entry.Message = content
	return entry
}

// readPrefix reads what the registry writes before the content of a row, which it returns.
func readPrefix(entry *api.LogEntry, line string) (content string) {
	stamp, rest, ok := strings.Cut(line, " ")
	at, err := time.Parse(time.RFC3339, stamp)
	if !ok || err != nil {
		return line
	}
	machine, rest, ok := strings.Cut(rest, " ")
	if !ok {
		return line
	}
	host, content, ok := strings.Cut(rest, " ")
	if !ok {
		return line
	}
	entry.Time, entry.MachineName = at, machine
	if host != "-" {
		entry.Host = host
	}
	return content
}

// parseJSON reads an object: of slog, or an event.
func parseJSON(entry *api.LogEntry, text string) bool {
	if !strings.HasPrefix(text, "{") {
		return false
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var object map[string]any
	if decoder.Decode(&object) != nil || decoder.InputOffset() != int64(len(text)) {
		return false
	}
	f := fields{entry: entry}
	f.addObject("", object, 0)
	if seconds, ok := object["time"].(json.Number); ok && entry.Time.IsZero() { // of an event
		if n, err := seconds.Int64(); err == nil && n >= 0 && n < 1<<35 {
			entry.Time = time.Unix(n, 0).UTC()
		}
	}
	if name, ok := object["name"].(string); ok && entry.Message == "" {
		entry.Message = name
	}
	return true
}

// fields adds keys and values to an entry.
type fields struct{ entry *api.LogEntry }

// add adds a key; the level and the message are not fields, nor are keys beyond maxFields.
func (f fields) add(key, value string) {
	switch {
	case contains(levelKeys, key) && f.entry.Level == "":
		if f.entry.Level = level(value); f.entry.Level != "" {
			return
		}
	case contains(messageKeys, key) && f.entry.Message == "":
		f.entry.Message = value
		return
	}
	if len(f.entry.Fields) >= maxFields {
		return
	}
	if f.entry.Fields == nil {
		f.entry.Fields = map[string]string{}
	}
	f.entry.Fields[key] = value
}

func contains(names []string, key string) bool {
	for _, name := range names {
		if strings.EqualFold(name, key) {
			return true
		}
	}
	return false
}

// addObject adds the members of an object in the order of their keys.
func (f fields) addObject(prefix string, object map[string]any, depth int) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		value := object[key]
		nested, isObject := value.(map[string]any)
		if isObject && depth < maxDepth {
			f.addObject(prefix+key+".", nested, depth+1)
			continue
		}
		f.add(prefix+key, valueText(value))
	}
}

// valueText returns a value of JSON as text: a string without quotes.
func valueText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(value) != nil {
		return ""
	}
	return strings.TrimSuffix(out.String(), "\n")
}
