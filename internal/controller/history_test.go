package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/history"
	"github.com/buildyard/buildyard/internal/farm"
)

// path formats the states that an instance went through.
func path(p *farm.InstanceHistory) string {
	text := ""
	for _, t := range p.Transitions {
		text += string(t.State) + " "
	}
	return text
}

func (c *cloud) past(q history.Query) []*farm.InstanceHistory {
	c.t.Helper()
	synctest.Wait()
	if q.Limit == 0 {
		q.Limit = 100
	}
	return c.History.List(q)
}

func TestHistoryOfAnInstance(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		id := c.mustStart(StartRequest{
			Name: "job", ExternalID: "http://ci/1", Options: farm.StartOptions{Script: []byte("secret")},
		})[0]
		o := a.take(api.OrderStart)
		a.say(o, api.PhasePulling)
		time.Sleep(time.Second)
		a.say(o, api.PhaseStarting)
		a.say(o, api.PhaseRunning)
		a.say(o, api.PhaseStopped)
		if err := c.Instances.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		a.say(o, api.PhaseTerminated)
		end := c.now()
		if list := c.past(history.Query{}); len(list) != 0 {
			t.Fatalf("in the history while its record is there: %+v", list)
		}
		time.Sleep(time.Minute + time.Second)
		c.wantState(id, farm.InstanceRemoved)
		list := c.past(history.Query{ID: id})
		if len(list) != 1 {
			t.Fatalf("history = %+v", list)
		}
		p := list[0]
		if got := path(p); got != "Pulling Scheduling Started Error Terminating Terminated " {
			t.Errorf("transitions: %s", got)
		}
		if p.Transitions[3].Reason != "The VM stopped without being asked to" {
			t.Errorf("reason of the error: %q", p.Transitions[3].Reason)
		}
		if took := p.Transitions[1].Time().Sub(p.Transitions[0].Time()); took != time.Second {
			t.Errorf("the pull took %s", took)
		}
		if p.Name != "job" || p.ExternalID != "http://ci/1" || p.NodeID != a.id || !p.Finished.Equal(end) ||
			p.Started.IsZero() {
			t.Errorf("past = %+v", p)
		}
		if same := c.past(history.Query{ExternalID: "http://ci/1"}); len(same) != 1 || same[0] != p {
			t.Errorf("by its external id: %+v", same)
		}
		if none := c.past(history.Query{ExternalID: "http://ci/2"}); len(none) != 0 {
			t.Errorf("by another external id: %+v", none)
		}
	})
}

func TestHistoryOfWhatNeverStarted(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		placed := c.mustStart(StartRequest{})[0]
		waits := c.mustStart(StartRequest{})[0]
		for _, id := range []string{waits, placed} {
			if err := c.Instances.Terminate(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		a.say(a.take(api.OrderTerminate), api.PhaseTerminated)
		time.Sleep(2 * time.Second)
		list := c.past(history.Query{})
		if len(list) != 2 || list[0].ID != waits || list[1].ID != placed { // newest first
			t.Fatalf("history = %+v", list)
		}
		for _, p := range list {
			if got := path(p); got != "Terminating Terminated " || !p.Started.IsZero() || p.Finished.IsZero() {
				t.Errorf("%s: %s %+v", p.ID, got, p)
			}
		}
	})
}
