package portal

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/bytesize"
)

// words are the functions of the templates.
var words = template.FuncMap{
	"ago":      ago,
	"span":     span,
	"stamp":    stamp,
	"absolute": absolute,
	"bytes":    bytesize.Format,
	"percent":  percent,
	"seconds":  func(s *float64) string { return lasting(*s) },
	"state":    stateOf,
	"join":     strings.Join,
	"plural":   plural,
	"query":    query,
	"deref":    func(n *int) int { return *n },
	"offer":    offer,
	"list":     func(items ...string) []string { return items },
	"moment":   func(now, at time.Time) timePair { return timePair{now, at} },
	"icon":     func(name string) string { return loadAssets().prefix + "icons.svg#" + name },
}

// timePair is a time, and the time at which it is shown.
type timePair struct{ Now, At time.Time }

// ago formats how long ago a time was; "-" where it is unknown.
func ago(now, t time.Time) string {
	if t.IsZero() || t.Unix() <= 0 {
		return "-"
	}
	return span(now.Sub(t).Truncate(time.Second))
}

// span formats a duration: the two largest units.
func span(d time.Duration) string {
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

// stamp is a time for <time datetime>.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// absolute formats a time in full, for the tooltip of a relative one.
func absolute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// percent writes a share of 1.
func percent(f float64) string { return fmt.Sprintf("%.0f", 100*f) }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

// query returns a path with parameters, from pairs of names and values. Empty values are left out.
func query(path string, pairs ...any) string {
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
type stateView struct{ Word, Tone, Icon string }

var stateViews = map[string]stateView{
	"Scheduling": {Tone: "off", Icon: "clock"}, "Pulling": {Tone: "busy", Icon: "pull"},
	"Started": {Tone: "ok", Icon: "ring"}, "Stopping": {Tone: "warn", Icon: "square"},
	"Stopped": {Tone: "off", Icon: "square"}, "Terminating": {Tone: "warn", Icon: "square"},
	"Terminated": {Tone: "off", Icon: "dash"}, "Error": {Tone: "bad", Icon: "alert"},
	"Pushing": {Tone: "busy", Icon: "push"},
	"Done":    {Tone: "ok", Icon: "ring"}, "Failed": {Tone: "bad", Icon: "alert"},
	"Waiting": {Tone: "off", Icon: "clock"},
	"Free":    {Tone: "ok", Icon: "ring"}, "Taken": {Tone: "busy", Icon: "half"}, "Active": {Tone: "ok", Icon: "ring"},
	"Updating": {Tone: "busy", Icon: "turn"}, "Drain Mode": {Tone: "warn", Icon: "half"},
	"Unhealthy": {Tone: "bad", Icon: "alert"}, "Offline": {Tone: "off", Icon: "dash"},
	"Inactive (Invalid License)": {Tone: "warn", Icon: "key"},
}

func stateOf(word string) stateView {
	v, ok := stateViews[word]
	if !ok {
		v = stateView{Tone: "off", Icon: "dash"}
	}
	v.Word = word
	return v
}
