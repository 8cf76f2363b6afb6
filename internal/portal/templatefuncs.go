package portal

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/chart"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// templateFuncs are the functions of the templates.
var templateFuncs = template.FuncMap{
	"ago":       format.Ago,
	"span":      format.Duration,
	"stamp":     format.Stamp,
	"absolute":  format.Full,
	"clock":     func(t time.Time) string { return t.UTC().Format(time.TimeOnly) },
	"precise":   func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"bytes":     bytesize.Format,
	"percent":   format.Percent,
	"running":   func(p api.SeriesPoint) *float64 { return runningOf(&p) },
	"seconds":   func(s *float64) string { return format.Seconds(*s) },
	"state":     newStateView,
	"join":      strings.Join,
	"plural":    format.Plural,
	"query":     format.Path,
	"groupPath": groupPath,
	"count":     func(n *int) string { return format.Count(*n) },
	"number":    format.Count,
	"less":      func(n, by int) int { return n - by },
	"sum":       func(a, b int) int { return a + b },
	"tenths":    func(f *float64) string { return fmt.Sprintf("%.1f", *f) },
	"offer":     newActionLink,
	"last":      func(line []chart.Phase) chart.Phase { return line[len(line)-1] },
	"list":      func(items ...string) []string { return items },
	"moment":    func(now, at time.Time) timePair { return timePair{now, at} },
	"icon":      func(name string) string { return loadAssets().pathPrefix + "icons.svg#" + name },
}

// timePair is a time, and the time at which it is shown.
type timePair struct{ Now, At time.Time }

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

// newPhaseView returns the display of an instance's state, in the words of its phase where the state does not tell
// whether it still waits for a node.
func newPhaseView(state, phase string) stateView {
	v := newStateView(state)
	if state == string(farm.Scheduling) && (phase == string(farm.PhasePlaced) || phase == string(farm.PhaseBooting)) {
		v.Plain, v.Tone, v.Icon = chart.PhaseText(phase), "busy", chart.PhaseIcon(phase)
	}
	return v
}

func newStateView(word string) stateView {
	v, ok := stateViews[word]
	if !ok {
		v = stateView{Tone: "off", Icon: "dash"}
	}
	v.Word = word
	return v
}
