package portal

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// logRow is a row of a log with its parts.
type logRow struct {
	ID, Clock     string
	Time          time.Time // zero: unknown
	Level, Tone   string    // "": unknown
	Class         string    // error or warning
	Source        string    // the program, and the machine of a node
	SourcePath    string    // the rows of this source
	Message       string
	Brief, Fields []logField // the most useful ones; all of them
	Raw           string
}

// logField is a field of a row.
type logField struct {
	Key, Value string
	Path       string // the page of what it names; "": none
	Same       string // the rows with the same value
}

const (
	briefFields = 5
	briefBytes  = 60 // of a value
	maxMessage  = 2 << 10
	maxRaw      = 8 << 10
)

// levelTones are the colors of levels.
var levelTones = map[string]string{
	api.LogError: "bad", api.LogWarn: "warn", api.LogInfo: "busy", api.LogDebug: "off",
}

// levelClasses mark the rows of levels.
var levelClasses = map[string]string{api.LogError: "error", api.LogWarn: "warning"}

// fieldPages are the pages of what fields name.
var fieldPages = map[string]string{
	"instance_id": "/instances/", "instance": "/instances/", "vm": "/instances/", "node_id": "/nodes/",
	"template": "/templates/", "template_id": "/templates/",
}

// newLogRows returns rows, the newest first.
func newLogRows(now time.Time, entries []api.LogEntry) []logRow {
	rows, ids := make([]logRow, len(entries)), rowIDs{}
	for i, e := range slices.Backward(entries) { // the oldest of equal rows has the plain ID
		rows[i] = newLogRow(now, e)
		rows[i].ID = ids.next(e.Raw)
	}
	return rows
}

func newLogRow(now time.Time, e api.LogEntry) logRow {
	row := logRow{
		Time: e.Time, Clock: clockText(now, e.Time), Level: strings.ToUpper(e.Level), Tone: levelTones[e.Level],
		Class: levelClasses[e.Level], Source: e.Service, SourcePath: "/logs/" + url.PathEscape(e.Service),
		Message: cutText(e.Message, maxMessage), Raw: cutText(e.Raw, maxRaw),
	}
	if e.Service == nodeService && e.MachineName != "" {
		row.Source += " " + e.MachineName
		row.SourcePath = format.Path(row.SourcePath, "q", "machine:"+format.FilterValue(e.MachineName))
	}
	for _, key := range slices.Sorted(maps.Keys(e.Fields)) {
		f := newLogField(e.Service, key, e.Fields[key])
		row.Fields = append(row.Fields, f)
		if key != "time" && key != "service" && f.Value != "" && len(row.Brief) < briefFields {
			f.Value = cutText(f.Value, briefBytes)
			row.Brief = append(row.Brief, f)
		}
	}
	for _, f := range []logField{{Key: "machine", Value: e.MachineName}, {Key: "host", Value: e.Host}} {
		if f.Value != "" {
			row.Fields = append(row.Fields, newLogField(e.Service, f.Key, f.Value))
		}
	}
	return row
}

func newLogField(service, key, value string) logField {
	f := logField{Key: key, Value: cutText(value, maxRaw)}
	if to, ok := fieldPages[key]; ok && len(value) == 36 && !strings.ContainsAny(value, " /") {
		f.Path = to + value
	}
	if value != "" && len(value) <= 200 && !strings.Contains(value, `"`) {
		f.Same = format.Path("/logs/"+url.PathEscape(service), "q", key+":"+format.FilterValue(value))
	}
	return f
}

// cutText returns the begin of a text.
func cutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// clockText returns the time of day with milliseconds, and the date before today; "-": unknown.
func clockText(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	t = t.UTC()
	layout := "15:04:05.000"
	if now.UTC().Format(time.DateOnly) != t.Format(time.DateOnly) {
		layout = "01-02 15:04:05"
	}
	return t.Format(layout)
}
