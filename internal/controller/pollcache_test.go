package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
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
	return a.c.PollRaw(a.t.Context(), a.cred, bytes.Clone(text), wait)
}

// TestUnchangedPollIsRemembered checks that only short polls without new information are cached.
func TestUnchangedPollIsRemembered(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("n", 2)
		for name, x := range map[string]struct {
			change func(*api.PollRequest)
			want   bool
		}{
			"idle":    {func(*api.PollRequest) {}, true},
			"usage":   {func(r *api.PollRequest) { r.Usage = &api.Usage{CPU: 0.5} }, true},
			"info":    {func(r *api.PollRequest) { r.Info = a.info }, false},
			"held":    {func(r *api.PollRequest) { r.HasHeld = true }, false},
			"acks":    {func(r *api.PollRequest) { r.Acks = []api.Ack{{}} }, false},
			"details": {func(r *api.PollRequest) { r.Details = []api.InventoryDetail{{}} }, false},
			"long":    {func(*api.PollRequest) {}, false},
		} {
			text := a.idle(x.change)
			if name == "long" {
				text = append(text, bytes.Repeat([]byte(" "), maxHeard)...)
			}
			if _, err := a.pollText(text, 0); err != nil {
				t.Fatal(err)
			}
			if got := c.link.recall(text) != nil; got != x.want {
				t.Errorf("%s: remembered is %t, want %t", name, got, x.want)
			}
		}
	})
}

// TestChangedPollIsNeverTakenForUnchanged checks that the cached form of a text equals its decoded
// form, whatever came before.
func TestChangedPollIsNeverTakenForUnchanged(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		agents := []*agent{c.join("a", 2), c.join("b", 2)}
		random := rand.New(rand.NewPCG(1, 2))
		recalled := 0
		for range 5000 {
			a := agents[random.IntN(2)]
			text := a.idle(func(r *api.PollRequest) {
				if random.IntN(2) == 0 {
					r.Usage = &api.Usage{CPU: float64(random.IntN(100)) / 100, VMs: random.IntN(3)}
				}
				r.Host = []string{"", "10.0.0.2", `"node_id":"` + agents[0].id}[random.IntN(3)]
			})
			if random.IntN(2) == 0 {
				text[random.IntN(len(text))] = byte(random.IntN(256))
			}
			for range 2 {
				_, _ = c.PollRaw(t.Context(), a.cred, bytes.Clone(text), 0)
			}
			h := c.link.recall(text)
			if h == nil {
				continue
			}
			recalled++
			var want api.PollRequest
			if err := json.Unmarshal(text, &want); err != nil || !cmp.Equal(h.req, want) {
				t.Fatalf("%s\nis taken for %+v (%v)", text, h.req, err)
			}
			if usage, _ := c.link.usage(want.NodeID); want.Usage != nil && usage != *want.Usage {
				t.Fatalf("usage %+v, want %+v", usage, *want.Usage)
			}
		}
		if recalled < 1000 {
			t.Errorf("only %d of 5000 polls were recalled", recalled)
		}
	})
}

// TestRememberedPollIsCheckedAsAny checks that a cached text is authenticated like any other.
func TestRememberedPollIsCheckedAsAny(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("n", 2)
		text := a.idle()
		if answer, err := a.pollText(text, 0); err != nil || answer.NeedFull || c.link.recall(text) == nil {
			t.Fatalf("%+v, %v", answer, err)
		}
		if _, err := c.PollRaw(t.Context(), "x"+a.cred, text, 0); farm.CodeOf(err) != farm.CodeUnauthenticated {
			t.Errorf("a wrong credential gives %v", err)
		}
		second := *a
		second.boot = uuid.NewString()
		if _, err := second.pollText(second.idle(), 0); farm.CodeOf(err) != farm.CodeConflict {
			t.Errorf("a second agent gets %v", err)
		}
		time.Sleep(takenOverAfter)
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
		if err := c.DeleteNode(t.Context(), a.id); err != nil {
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
				took > 5*time.Second+beat {
				t.Fatalf("%+v, %v after %s", answer, err, took)
			}
		}
		answers := make(chan *api.PollAnswer)
		go func() {
			answer, _ := c.PollRaw(t.Context(), a.cred, text, MaxWait)
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
			answer, _ := c.PollRaw(ctx, a.cred, text, MaxWait)
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

func TestBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeats()
		time.Sleep(beat / 5)
		one, same := b.after(beat), b.after(beat+beat/2)
		if one != same || len(b.ends) != 1 {
			t.Error("two that end at the same moment have timers of their own")
		}
		for _, wait := range []time.Duration{
			0, beat, beat + 1, 10 * beat,
		} {
			begun := time.Now()
			<-b.after(wait)
			if took := time.Since(begun); took < wait || took >= wait+beat || time.Since(b.begun)%beat != 0 {
				t.Errorf("a wait of %s takes %s", wait, took)
			}
		}
		if len(b.ends) > 0 {
			t.Errorf("%d moments that have passed are kept", len(b.ends))
		}
	})
}

// TestQuietAnswer checks that a response is replaced by the prepared empty one only if it equals
// that, whatever field is set.
func TestQuietAnswer(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("n", 2)
		if answer, err := a.pollText(a.idle(), 0); err != nil || !IsEmptyPoll(answer) ||
			!cmp.Equal(answer, c.EmptyPollResponse()) {
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
		}
		if fields := reflect.TypeFor[api.PollAnswer]().NumField(); fields != len(loud)+2 {
			t.Errorf("%d fields, tried %d, and Registry and CentralLog", fields, len(loud))
		}
		for _, answer := range loud {
			if IsEmptyPoll(answer) {
				t.Errorf("%+v is taken for quiet", answer)
			}
		}
	})
}

// TestNodesAreToldAboutTheirLogs: every response has the controller's log setting, and the node's
// own.
func TestNodesAreToldAboutTheirLogs(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("n", 2)
		for _, central := range []bool{false, true} {
			c.stop()
			c.start(Options{CentralLog: central})
			for _, exempt := range []bool{false, true} {
				n, err := c.Node(t.Context(), a.id)
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
