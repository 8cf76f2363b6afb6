package controller

import (
	"testing"
	"testing/synctest"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

const awayNote = "the registry cannot be reached: tag v2 is taken from the last known state of the template"

// TestStartWhileTheRegistryIsAway: a template that was read from the registry earlier is started
// from its last known state, with a note, also after a restart of the controller.
func TestStartWhileTheRegistryIsAway(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 9)
		online, _ := c.Instances.Get(t.Context(), c.mustStart(StartRequest{})[0])
		if online.Message != "" {
			t.Errorf("note %q with the registry there", online.Message)
		}
		a.say(a.take(api.OrderStart), api.PhaseRunning)
		c.shelf.setDown(true)
		for round := range 2 {
			number := 1
			for name, req := range map[string]StartRequest{
				"latest": {}, "tag": {Tag: "v2"}, "version": {Version: &number},
			} {
				id := c.mustStart(req)[0]
				inst, _ := c.Instances.Get(t.Context(), id)
				if inst.Template != online.Template || inst.Message != awayNote || inst.NodeID != a.id {
					t.Errorf("%d %s: %+v with %q on %q", round, name, inst.Template, inst.Message, inst.NodeID)
				}
				o := a.take(api.OrderStart)
				phase := api.PhasePulling
				if name == "tag" { // it is on the node
					phase = api.PhaseRunning
				}
				a.say(o, phase)
				if inst, _ = c.Instances.Get(t.Context(), id); inst.Message != "" || inst.State == farm.Scheduling {
					t.Errorf("%s: %s with the message %q", name, inst.State, inst.Message)
				}
			}
			c.restart()
			synctest.Wait()
			a.contact()
		}
		c.shelf.setDown(false)
		inst, _ := c.Instances.Get(t.Context(), c.mustStart(StartRequest{})[0])
		if inst.Message != "" {
			t.Errorf("note %q although the registry is back", inst.Message)
		}
	})
}

// TestStartOfTheUnknownWhileTheRegistryIsAway: an error about what only the registry knows has none
// of the texts that make clients stop retrying, or start another version.
func TestStartOfTheUnknownWhileTheRegistryIsAway(t *testing.T) {
	seven, unknown := 7, "99999999-2222-4333-8444-555555555555"
	inCloud(t, func(t *testing.T, c *cloud) {
		c.mustStart(StartRequest{})
		c.shelf.setDown(true)
		for want, req := range map[string]StartRequest{
			"VM not in the registry": {TemplateID: "base"},
			"Template " + unknown + " is not in the controller's records": {TemplateID: unknown},
			"The requested version of template base is not in the controller's records, and the registry cannot be " +
				"queried: " +
				"The registry cannot be reached; try again": {TemplateID: templateID, Tag: "v9"},
			"The requested version of template base is not in the controller's records": {
				TemplateID: templateID, Version: &seven,
			},
		} {
			req.Count = 1
			_, err := c.Start(t.Context(), req)
			wantRefused(t, err, farm.CodeRefused, want)
		}
	})
}

// TestReasonForWaitingKeepsTheNote: the message of a pending instance has both.
func TestReasonForWaitingKeepsTheNote(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.mustStart(StartRequest{})
		c.shelf.setDown(true)
		inst, _ := c.Instances.Get(t.Context(), c.mustStart(StartRequest{})[0])
		if want := "there are no nodes; " + awayNote; inst.Message != want {
			t.Errorf("message %q, want %q", inst.Message, want)
		}
	})
}
