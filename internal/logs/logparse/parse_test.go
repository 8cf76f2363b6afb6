package logparse

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
)

const prefix = "2026-01-02T03:04:05.678Z mac-1 10.0.0.1 "

var received = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)

// TestRow: each format has level, message and fields.
func TestRow(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		want    api.LogEntry
	}{
		"JSON": {
			`{"time":"2026-01-02T03:04:05Z","level":"WARN","msg":"pull failed","node":{"id":"n1"},"tries":3,"ok":true}`,
			api.LogEntry{Level: "warn", Message: "pull failed", Fields: map[string]string{
				"time": "2026-01-02T03:04:05Z", "node.id": "n1", "tries": "3", "ok": "true",
			}},
		},
		"JSON with a list": {
			`{"severity":"ERROR","message":"x","list":["<a>",1]}`,
			api.LogEntry{Level: "error", Message: "x", Fields: map[string]string{"list": `["<a>",1]`}},
		},
		"two objects": {`{"level":"INFO"} {}`, api.LogEntry{Message: `{"level":"INFO"} {}`}},
		"text of slog": {
			`time=2026-01-02T03:04:05.000Z level=ERROR+2 msg="it \"failed\"" node_id=n1 error="a b"`,
			api.LogEntry{Level: "error", Message: `it "failed"`, Fields: map[string]string{
				"time": "2026-01-02T03:04:05.000Z", "node_id": "n1", "error": "a b",
			}},
		},
		"logfmt": {
			`lvl=dbug msg=hello a=`,
			api.LogEntry{Message: "hello", Fields: map[string]string{"lvl": "dbug", "a": ""}},
		},
		"klog": {
			`W0102 03:04:05.678901    1234 file.go:12] "It failed" node="n 1" count=2`,
			api.LogEntry{Level: "warn", Message: "It failed", Fields: map[string]string{
				"source": "file.go:12", "node": "n 1", "count": "2",
			}},
		},
		"klog, plain": {
			`E0102 03:04:05.678901       1 file.go:12] no quotes: x=1`,
			api.LogEntry{Level: "error", Message: "no quotes: x=1", Fields: map[string]string{"source": "file.go:12"}},
		},
		"plain":      {"just text, a=b", api.LogEntry{Message: "just text, a=b"}},
		"only pairs": {"a=b c=d", api.LogEntry{Message: "a=b c=d"}},
		"empty":      {"", api.LogEntry{}},
		"long":       {strings.Repeat("x", maxRow+1), api.LogEntry{Message: strings.Repeat("x", maxRow+1)}},
	} {
		got := Row("node", prefix+c.content, false)
		if !got.Time.Equal(received) || got.MachineName != "mac-1" || got.Host != "10.0.0.1" ||
			got.Service != "node" || got.Raw != prefix+c.content {
			t.Errorf("%s: %+v", name, got)
		}
		if got.Level != c.want.Level || got.Message != c.want.Message || !maps.Equal(got.Fields, c.want.Fields) {
			t.Errorf("%s:\n got %q %q %q\nwant %q %q %q", name, got.Level, got.Message, got.Fields,
				c.want.Level, c.want.Message, c.want.Fields)
		}
	}
}

// TestRowsOfSlog: what log/slog writes now is read.
func TestRowsOfSlog(t *testing.T) {
	var text, object bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&text, nil), slog.NewJSONHandler(&object, nil)} {
		slog.New(h).Warn("a message", "key", "a value", slog.Group("g", "n", 1))
	}
	for _, line := range []string{text.String(), object.String()} {
		got := Row("x", prefix+strings.TrimSpace(line), false)
		if got.Level != "warn" || got.Message != "a message" || got.Fields["key"] != "a value" ||
			got.Fields["g.n"] != "1" {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

// TestEvents: a line of the event log has its time as a number.
func TestEvents(t *testing.T) {
	got := Row("event", `{"instance_id":"i","name":"StartVM","time":1601991701,"type":"apiAction"}`, true)
	if got.Message != "StartVM" || got.Time.Unix() != 1601991701 || got.Fields["instance_id"] != "i" {
		t.Errorf("event: %+v", got)
	}
}

// TestNoPrefix: a line that the registry did not begin is shown as it is.
func TestNoPrefix(t *testing.T) {
	for _, line := range []string{"", "x", "2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.678Z mac", "a b c d"} {
		if got := Row("x", line, false); got.Message != line || !got.Time.IsZero() {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

// TestFilter: every condition has to hold.
func TestFilter(t *testing.T) {
	entry := Row("node", prefix+`level=warn msg="Pull failed" node_id=n1`, false)
	for _, c := range []struct {
		level  string
		fields []string
		text   string
		want   bool
	}{
		{"", nil, "", true},
		{"info", nil, "", true},
		{"WARNING", nil, "", true},
		{"error", nil, "", false},
		{"", []string{"node_id=n1", "machine=mac-1"}, "pull", true},
		{"", []string{"node_id=n1", "machine=mac-2"}, "", false},
		{"", []string{"other="}, "", false},
		{"", []string{"level=warn", "host=10.0.0.1"}, "", true},
		{"", nil, "PULL FAILED", true},
		{"", nil, "push", false},
	} {
		f, err := ParseFilter(c.level, c.fields, c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Match(entry); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
	for _, f := range []Filter{{Since: received.Add(time.Second)}, {Until: received}} {
		if f.Match(entry) || f.IsZero() {
			t.Errorf("%+v matches", f)
		}
	}
	if f := (Filter{Since: received, Until: received.Add(1)}); !f.Match(entry) {
		t.Error("the time of the entry does not match")
	}
	if plain := Row("x", "text", false); (Filter{Level: "debug"}).Match(plain) {
		t.Error("an entry without a level matches a level")
	}
}

// TestBadFilters: what is not valid is refused with the name of the parameter.
func TestBadFilters(t *testing.T) {
	many := make([]string, maxConditions+1)
	for i := range many {
		many[i] = fmt.Sprintf("k%d=v", i)
	}
	for _, c := range []struct {
		level  string
		fields []string
		text   string
		want   string
	}{
		{"loud", nil, "", "level"},
		{"", []string{"novalue"}, "", "field"},
		{"", []string{"=x"}, "", "field"},
		{"", many, "", "field"},
		{"", nil, strings.Repeat("x", maxTextBytes+1), "q"},
	} {
		if _, err := ParseFilter(c.level, c.fields, c.text); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// FuzzRow: every row is accepted, with bounded fields, and its text is kept.
func FuzzRow(f *testing.F) {
	for _, content := range []string{
		`{"level":"INFO","msg":"x","a":{"b":{"c":{"d":{"e":{"f":1}}}}}}`, `level=info msg="a \n b" c=d`,
		`I0102 03:04:05.678901 1 f.go:1] "m" k="v" rest`, "plain", "", `{`, `msg="`, "{}",
		strings.Repeat("a=b ", 500) + "msg=x",
	} {
		f.Add(prefix+content, false)
		f.Add(content, true)
	}
	f.Fuzz(func(t *testing.T, line string, isEvent bool) {
		got := Row("s", line, isEvent)
		// Invalid UTF-8 is replaced, by at most three bytes for one.
		if got.Raw != line || len(got.Fields) > maxFields || len(got.Message) > 3*len(line) {
			t.Errorf("%q: %+v", line, got)
		}
		if got.Level != "" && severity[got.Level] == 0 {
			t.Errorf("%q: level %q", line, got.Level)
		}
		(Filter{Level: "warn", Text: "x", Fields: []Condition{{"a", "b"}}}).Match(got)
	})
}
