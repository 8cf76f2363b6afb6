package controller

import (
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/alarms"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// TestStatusHasAlarms: the status has the alarms of other parts of the process, also as plain texts.
func TestStatusHasAlarms(t *testing.T) {
	const message = "Authentication is off"
	c := &cloud{t: t, shelf: &shelf{}, backend: mem.New()}
	source := alarms.FromMessage("no_authentication", func() string { return message }, "Switch it on.")
	c.start(Options{Alarms: []alarms.Source{source}})
	defer func() { c.stop() }()
	want := api.Alarm{Name: "no_authentication", Message: message, Action: "Switch it on."}
	s := c.Status(t.Context())
	if len(s.ActiveAlarms) != 1 || len(s.Alarms) != 1 || s.Alarms[0] != message {
		t.Fatalf("alarms: %v, %v", s.ActiveAlarms, s.Alarms)
	}
	got := s.ActiveAlarms[0]
	if want.Since = got.Since; got != want || got.Since.IsZero() {
		t.Errorf("alarm %+v, want %+v", got, want)
	}
}
