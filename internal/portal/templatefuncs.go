package portal

import (
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/bytesize"
)

// templateFuncs are the functions of the templates.
var templateFuncs = template.FuncMap{
	"ago":      timeAgo,
	"span":     durationText,
	"stamp":    timestamp,
	"absolute": fullTime,
	"clock":    func(t time.Time) string { return t.UTC().Format(time.TimeOnly) },
	"precise":  func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"bytes":    bytesize.Format,
	"percent":  percentText,
	"seconds":  func(s *float64) string { return secondsText(*s) },
	"state":    newStateView,
	"join":     strings.Join,
	"plural":   pluralText,
	"query":    pathWithQuery,
	"count":    func(n *int) string { return countText(*n) },
	"number":   countText,
	"less":     func(n, by int) int { return n - by },
	"sum":      func(a, b int) int { return a + b },
	"tenths":   func(f *float64) string { return fmt.Sprintf("%.1f", *f) },
	"offer":    newActionLink,
	"last":     func(line []timelineEntry) timelineEntry { return line[len(line)-1] },
	"list":     func(items ...string) []string { return items },
	"moment":   func(now, at time.Time) timePair { return timePair{now, at} },
	"icon":     func(name string) string { return loadAssets().pathPrefix + "icons.svg#" + name },
}

// timePair is a time, and the time at which it is shown.
type timePair struct{ Now, At time.Time }

// timeAgo formats how long ago a time was; "-" where it is unknown.
func timeAgo(now, t time.Time) string {
	if t.IsZero() || t.Unix() <= 0 {
		return "-"
	}
	return durationText(now.Sub(t).Truncate(time.Second))
}

// durationText formats a duration: the two largest units.
func durationText(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case d > 0 && d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d m %02d s", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%d h %02d m", s/3600, s/60%60)
	}
	return fmt.Sprintf("%d d %02d h", s/86400, s/3600%24)
}

// timestamp is a time for <time datetime>.
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// fullTime formats a time in full, for the tooltip of a relative one.
func fullTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// percentText writes a share of 1.
func percentText(f float64) string { return fmt.Sprintf("%.0f", 100*f) }

// countText formats a number with a narrow space between thousands.
func countText(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// confirmText is a number with its unit as a visitor types it: without the marks between thousands.
func confirmText(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func pluralText(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return countText(n) + " " + many
}

// pathWithQuery returns a path with parameters, from pairs of names and values. Empty values are left out.
func pathWithQuery(path string, pairs ...any) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if text := fmt.Sprint(pairs[i+1]); text != "" {
			q.Set(fmt.Sprint(pairs[i]), text)
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// stateView is the display of a state: never its color alone.
type stateView struct {
	Word, Tone, Icon string
	Plain            string // the state in plain words; "": Word is plain
}

// Label returns the plain word with the word of the API.
func (s stateView) Label() string {
	if s.Plain == "" {
		return s.Word
	}
	return s.Plain + " (" + s.Word + ")"
}

var stateViews = map[string]stateView{
	"Scheduling": {Tone: "off", Icon: "clock", Plain: "Waiting"}, "Pulling": {Tone: "busy", Icon: "pull"},
	"Started": {Tone: "ok", Icon: "ok"}, "Stopping": {Tone: "warn", Icon: "stop"},
	"Stopped": {Tone: "off", Icon: "stop"}, "Terminating": {Tone: "warn", Icon: "stop"},
	"Terminated": {Tone: "off", Icon: "dash"}, "Error": {Tone: "bad", Icon: "alert", Plain: "Failed"},
	"Pushing": {Tone: "busy", Icon: "push", Plain: "Saving"},
	"Running": {Tone: "busy", Icon: "play"}, "Done": {Tone: "ok", Icon: "ok"}, "Failed": {Tone: "bad", Icon: "alert"},
	"Waiting": {Tone: "off", Icon: "clock"}, "Failed VM": {Tone: "bad", Icon: "alert"},
	"Orphaned VM": {Tone: "warn", Icon: "alert"}, "Unused": {Tone: "off", Icon: "dash"},
	"Unavailable": {Tone: "off", Icon: "wifi"},
	"Free":        {Tone: "ok", Icon: "ok"}, "Taken": {Tone: "busy", Icon: "half"}, "Active": {Tone: "ok", Icon: "ok"},
	"Updating": {Tone: "busy", Icon: "turn"}, "Drain Mode": {Tone: "warn", Icon: "drain"},
	"Unhealthy": {Tone: "bad", Icon: "alert"}, "Offline": {Tone: "off", Icon: "wifi"},
	"Inactive (Invalid License)": {Tone: "warn", Icon: "key"},
}

func newStateView(word string) stateView {
	v, ok := stateViews[word]
	if !ok {
		v = stateView{Tone: "off", Icon: "dash"}
	}
	v.Word = word
	return v
}
