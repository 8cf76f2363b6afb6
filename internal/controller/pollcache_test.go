package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/farm"
)

// idle returns the poll of a node that has nothing to report, as bytes.
func (a *agent) idle(change ...func(*api.PollRequest)) []byte {
	req := api.PollRequest{Protocol: api.LinkProtocol, NodeID: a.id, BootID: a.boot, InfoHash: "info", HeldHash: "0"}
	for _, f := range change {
		f(&req)
	}
	raw, err := json.Marshal(req)
	if err != nil {
		a.t.Fatal(err)
	}
	return raw
}

func (a *agent) pollText(text []byte, wait time.Duration) (*api.PollAnswer, error) {
	synctest.Wait()
	return a.c.Link.PollRaw(a.t.Context(), a.cred, bytes.Clone(text), time.Time{}, wait)
}

// TestRememberedPollIsCheckedAsAny checks that a cached text is authenticated like any other.
func TestRememberedPollIsCheckedAsAny(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("n", 2)
		text := a.idle()
		if answer, err := a.pollText(text, 0); err != nil || answer.NeedFull {
			t.Fatalf("%+v, %v", answer, err)
		}
		_, err := c.Link.PollRaw(t.Context(), "x"+a.cred, text, time.Time{}, 0)
		if farm.CodeOf(err) != farm.CodeUnauthenticated {
			t.Errorf("a wrong credential gives %v", err)
		}
		second := *a
		second.boot = uuid.NewString()
		if _, err := second.pollText(second.idle(), 0); farm.CodeOf(err) != farm.CodeConflict {
			t.Errorf("a second agent gets %v", err)
		}
		time.Sleep(takeoverAfter)
		if answer, err := second.pollText(second.idle(), 0); err != nil || !answer.NeedFull {
			t.Errorf("an agent that takes over gets %+v, %v", answer, err)
		}
		if _, err := a.pollText(text, 0); farm.CodeOf(err) != farm.CodeConflict {
			t.Errorf("the agent that was taken over gets %v", err)
		}
		c.restart()
		if answer, err := second.pollText(second.idle(), 0); err != nil || !answer.NeedFull {
			t.Errorf("after a restart: %+v, %v", answer, err)
		}
		if answer, err := second.pollText(second.idle(), 0); err != nil || !answer.NeedFull {
			t.Errorf("after a restart, said again: %+v, %v", answer, err)
		}
		if err := c.Nodes.Delete(t.Context(), a.id); err != nil {
			t.Fatal(err)
		}
		if answer, err := second.pollText(second.idle(), 0); err != nil || !answer.Removed {
			t.Errorf("a removed node gets %+v, %v", answer, err)
		}
	})
}

// TestRememberedPollHangsAsAny checks that the poll returns orders immediately, ends with its time
// and notices an agent that disconnects.
func TestRememberedPollHangsAsAny(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("n", 2)
		text := a.idle()
		for range 2 {
			begun := time.Now()
			answer, err := a.pollText(text, 5*time.Second)
			if took := time.Since(begun); err != nil || len(answer.Orders) > 0 || took < 5*time.Second ||
				took > 5*time.Second+tickInterval {
				t.Fatalf("%+v, %v after %s", answer, err, took)
			}
		}
		answers := make(chan *api.PollAnswer)
		go func() {
			answer, _ := c.Link.PollRaw(t.Context(), a.cred, text, time.Time{}, nodelink.MaxWait)
			answers <- answer
		}()
		synctest.Wait()
		begun := time.Now()
		c.mustStart(StartRequest{})
		if answer := <-answers; len(answer.Orders) != 1 || time.Since(begun) > time.Second {
			t.Errorf("%+v after %s", answer, time.Since(begun))
		}
		ctx, hangUp := context.WithCancel(t.Context())
		a.contact()
		go func() {
			answer, _ := c.Link.PollRaw(ctx, a.cred, text, time.Time{}, nodelink.MaxWait)
			answers <- answer
		}()
		synctest.Wait()
		hangUp()
		<-answers
		second := *a
		second.boot = uuid.NewString()
		if _, err := second.pollText(second.idle(), 0); err != nil {
			t.Errorf("after the first agent hung up a second one gets %v", err)
		}
	})
}

// TestEmptyPollResponse checks that a response is replaced by the prepared empty one only if it equals
// that, whatever field is set.
func TestEmptyPollResponse(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("n", 2)
		if answer, err := a.pollText(a.idle(), 0); err != nil || !nodelink.IsEmptyPoll(answer) ||
			!cmp.Equal(answer, c.Link.EmptyPollResponse()) {
			t.Errorf("%+v, %v", answer, err)
		}
		loud := []*api.PollAnswer{
			{NeedFull: true},
			{Removed: true},
			{Orders: []api.Order{{}}},
			{Describe: []string{"x"}},
			{CacheJobs: []api.CacheJob{{}}},
			{NoCentralLog: true},
			{Update: &api.AgentUpdate{}},
			{Consoles: []api.ConsoleRequest{{}}},
			{Cloud: &api.CloudAnnouncement{}},
		}
		if fields := reflect.TypeFor[api.PollAnswer]().NumField(); fields != len(loud)+2 {
			t.Errorf("%d fields, tried %d, and Registry and CentralLog", fields, len(loud))
		}
		for _, answer := range loud {
			if nodelink.IsEmptyPoll(answer) {
				t.Errorf("%+v is taken for quiet", answer)
			}
		}
	})
}

// TestPollResponsesHaveLogSettings: every response has the controller's log setting, and the node's
// own.
func TestPollResponsesHaveLogSettings(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("n", 2)
		for _, central := range []bool{false, true} {
			c.stop()
			c.start(Options{CentralLog: central})
			for _, exempt := range []bool{false, true} {
				n, err := c.Nodes.Get(t.Context(), a.id)
				if err != nil {
					t.Fatal(err)
				}
				node := n.Node.Clone()
				node.NoCentralLog = exempt
				c.putNode(node)
				answer, err := a.pollText(a.idle(), 0)
				if err != nil || answer.CentralLog != central || answer.NoCentralLog != exempt {
					t.Errorf("%v, %v: %+v, %v", central, exempt, answer, err)
				}
			}
		}
	})
}
