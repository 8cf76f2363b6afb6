package chart

import (
	"cmp"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// Phase is a phase that an instance was in, as a bar.
type Phase struct {
	State    string // of the API
	Phase    string // in plain words
	Icon     string
	Tone     string // of the bar: ok, busy, warn, bad or off
	Message  string
	Since    time.Time
	Duration string // so far, where it is still in it
	X, Width int    // of the bar, of timelineWidth
}

// timelineWidth is the width of all bars together.
const timelineWidth = 1000

// Timeline is the phases of an instance with how long each took.
type Timeline struct {
	Entries []Phase
	Begin   time.Time
	Marks   []string // times after the begin, evenly spaced; the last one is the end
	Summary string   // the most useful figure of it; "": none
}

// phaseViews are the phases of the API.
var phaseViews = map[string]Phase{
	"queued":         {Phase: "Waiting for a slot", Icon: "clock", Tone: "off"},
	"placed":         {Phase: "Placed on a node", Icon: "server", Tone: "busy"},
	"pulling":        {Phase: "Pulling", Icon: "pull", Tone: "busy"},
	"booting":        {Phase: "Booting", Icon: "play", Tone: "busy"},
	"startup_script": {Phase: "Startup script", Icon: "term", Tone: "busy"},
	"running":        {Phase: "Running", Icon: "ok", Tone: "ok"},
	"restarting":     {Phase: "Restarting", Icon: "turn", Tone: "busy"},
	"saving":         {Phase: "Saving", Icon: "push", Tone: "busy"},
	"stopping":       {Phase: "Stopping", Icon: "stop", Tone: "warn"},
	"stopped":        {Phase: "Stopped", Icon: "stop", Tone: "off"},
	"terminating":    {Phase: "Terminating", Icon: "stop", Tone: "warn"},
	"terminated":     {Phase: "Terminated", Icon: "dash", Tone: "off"},
	"failed":         {Phase: "Failed", Icon: "alert", Tone: "bad"},
}

// NewTimeline returns the phases of an instance, which began by waiting. end is zero while it exists.
func NewTimeline(now, created time.Time, all []api.Transition, end time.Time) (line Timeline) {
	if !created.IsZero() {
		all = append([]api.Transition{{State: string(farm.Scheduling), Phase: "queued", Time: created}}, all...)
	}
	if len(all) == 0 {
		return line
	}
	ends := end
	if end.IsZero() {
		ends = now
	}
	line.Begin = all[0].Time
	shown := timelineEnd(all, ends)
	for i, t := range all {
		until := ends
		if i+1 < len(all) {
			until = all[i+1].Time
		}
		e := phaseOf(t)
		e.State, e.Message, e.Since = t.State, t.Message, t.Time
		if i+1 < len(all) || end.IsZero() || end.After(t.Time) {
			e.Duration = format.Duration(until.Sub(t.Time))
		}
		if i+1 < len(all) && all[i+1].State == string(farm.Errored) {
			e.Tone = "bad"
		}
		e.X, e.Width = barOf(line.Begin, shown, t.Time, until)
		line.Entries = append(line.Entries, e)
	}
	for i := 1; i <= 4; i++ {
		line.Marks = append(line.Marks, "+"+format.Duration(shown.Sub(line.Begin)*time.Duration(i)/4))
	}
	if at := firstStarted(all); !at.IsZero() {
		line.Summary = "ready " + format.Duration(at.Sub(line.Begin)) + " after the request"
	}
	return line
}

// PhaseText returns a phase of the API in plain words; "" for unknown ones.
func PhaseText(phase string) string { return phaseViews[phase].Phase }

// PhaseIcon returns the icon of a phase of the API.
func PhaseIcon(phase string) string { return phaseViews[phase].Icon }

// phaseOf returns the phase that began with a transition.
func phaseOf(t api.Transition) Phase {
	if e, ok := phaseViews[t.Phase]; ok {
		return e
	}
	return Phase{Phase: cmp.Or(t.Phase, t.State), Icon: "dash", Tone: "off"}
}

// timelineEnd returns where the bars end: the last state, which may last for days, has at most 20 %.
func timelineEnd(all []api.Transition, ends time.Time) time.Time {
	begin, last := all[0].Time, all[len(all)-1].Time
	before := last.Sub(begin)
	if before <= 0 || ends.Sub(last) < before/4 {
		return ends
	}
	return last.Add(before / 4)
}

// barOf returns the place of a time span between begin and end. Each bar is wide enough to be seen.
func barOf(begin, end, from, until time.Time) (x, width int) {
	all := end.Sub(begin)
	if all <= 0 {
		return 0, timelineWidth
	}
	at := func(t time.Time) int {
		return int(min(max(float64(t.Sub(begin))/float64(all), 0), 1) * timelineWidth)
	}
	x = min(at(from), timelineWidth-4)
	return x, max(at(until)-x, 4)
}

func firstStarted(all []api.Transition) time.Time {
	for _, t := range all {
		if t.State == string(farm.Started) {
			return t.Time
		}
	}
	return time.Time{}
}

// Label describes a bar for users of screen readers.
func (e Phase) Label() string { return fmt.Sprintf("%s: %s", e.Phase, e.Duration) }
