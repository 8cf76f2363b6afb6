package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// inbox is a target of events; fail decides the result of one. Later events of its subject wait
// then.
type inbox struct {
	mu   sync.Mutex
	fail func(events.EncodedEvent) error
	got  []events.EncodedEvent
}

func (b *inbox) Send(_ context.Context, events []events.EncodedEvent) ([]bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	did, held := make([]bool, len(events)), map[string]bool{}
	var failed error
	for i, e := range events {
		if b.fail != nil && !held[e.Subject] {
			if err := b.fail(e); err != nil {
				failed, held[e.Subject] = err, true
			}
		}
		if !held[e.Subject] {
			b.got, did[i] = append(b.got, e), true
		}
	}
	return did, failed
}

func (b *inbox) failing(f func(events.EncodedEvent) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = f
}

// ofSilence are the events that also follow when no test agent polls and no registry answers. Only their own test
// counts them.
var ofSilence = []farm.EventName{
	farm.EventNodeOffline, farm.EventNodeRecovered, farm.EventAlarmStarted, farm.EventAlarmEnded,
}

// lines returns the events that arrived, as "<name> <additional keys in use>", without those of silence.
func (b *inbox) lines() (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.got {
		var v struct {
			Name, State, Machine string
			Was                  string `json:"instance_state"`
		}
		if err := json.Unmarshal(e.Record, &v); err != nil {
			panic(err)
		}
		if !slices.Contains(ofSilence, farm.EventName(v.Name)) {
			list = append(list, strings.Join(strings.Fields(v.Name+" "+v.State+" "+v.Was), " "))
		}
	}
	return list
}

func (b *inbox) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = nil
}

// fewEvents is how many events the controllers of withEvents store.
const fewEvents = 5000

func withEvents(t *testing.T, test func(t *testing.T, c *cloud, to *inbox)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, to := &cloud{t: t, shelf: &shelf{}, backend: mem.New()}, &inbox{}
		c.start(Options{Events: events.Options{Machine: "host", Push: to, MaxStored: fewEvents}})
		defer func() { c.stop() }()
		test(t, c, to)
	})
}

func wantLines(t *testing.T, to *inbox, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := to.lines(); !slices.Equal(got, want) {
		t.Errorf("events:\n got %s\nwant %s", strings.Join(got, "; "), strings.Join(want, "; "))
	}
	to.clear()
}

func TestEventsOfAVM(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		a := c.join("mac-1", 2)
		id := c.mustStart(StartRequest{})[0]
		wantLines(t, to, "StartVM")
		o := a.take(api.OrderStart)
		a.say(o, api.PhasePulling)
		a.say(o, api.PhaseRunning)
		wantLines(t, to, "TemplatePulled", "VMStarted Started")
		for range 2 { // a second call changes nothing
			if err := c.Instances.Terminate(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		wantLines(t, to, "TerminateVM Started")
		a.say(a.take(api.OrderTerminate), api.PhaseTerminated)
		wantLines(t, to, "VMTerminated Terminated")
		time.Sleep(2 * time.Minute) // the record is removed, which causes no event
		wantLines(t, to)
	})
}

func TestEventRecordsOfAVM(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		a := c.join("mac-1", 2)
		id := c.mustStart(StartRequest{Options: farm.StartOptions{PinnedNode: a.id, Priority: 7}, Tag: "v1"})[0]
		a.say(a.take(api.OrderStart), api.PhaseRunning)
		synctest.Wait()
		want := []string{
			fmt.Sprintf(
				`{"group_id":null,"instance_id":"%s","machineName":"host","name":"StartVM","node_id":"%s","priority":7,"sub_type":"vmAction",`+
					`"tag":"v1","template_id":"%s","time":%d,"type":"apiAction"}`, id, a.id, templateID,
				time.Now().Unix()),
			fmt.Sprintf(
				`{"instance_id":"%s","machineName":"host","name":"VMStarted","node_id":"%s","state":"Started","sub_type":"vmAction","time":%d,"type":"systemAction"}`,
				id, a.id, time.Now().Unix()),
		}
		for i, e := range to.got {
			if string(e.Record) != want[i] {
				t.Errorf("got  %s\nwant %s", e.Record, want[i])
			}
			if e.Subject != id || e.ID == "" {
				t.Errorf("event %q is about %q", e.ID, e.Subject)
			}
		}
	})
}

func TestEventsOfUnrequestedEnds(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		a := c.join("mac-1", 3)
		c.mustStart(StartRequest{TTL: time.Minute})
		a.say(a.take(api.OrderStart), api.PhaseRunning)
		to.clear()
		time.Sleep(61 * time.Second)
		a.say(a.take(api.OrderTerminate), api.PhaseTerminated)
		wantLines(t, to, "VMTerminated Terminated")

		id := c.mustStart(StartRequest{})[0]
		a.say(a.take(api.OrderStart), api.PhaseFailed, func(s *api.InstanceStatus) { s.Message = "no disk" })
		wantLines(t, to, "StartVM", "VMFailedToStart Error")
		if err := c.Instances.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		a.say(a.take(api.OrderTerminate), api.PhaseTerminated)
		wantLines(t, to, "TerminateVM Error", "VMTerminated Terminated")

		id = c.mustStart(StartRequest{GroupID: c.mustGroup("nowhere", nil).ID})[0]
		if err := c.Instances.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		wantLines(t, to, "StartVM", "TerminateVM Scheduling", "VMTerminated Terminated")
	})
}

func TestEventsOfNodes(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		a, b := c.join("mac-1", 1), c.join("mac-2", 1)
		capacity := 2
		for range 2 { // a write that changes nothing causes no event
			if err := c.Nodes.Configure(t.Context(), a.id, nodes.Config{Capacity: &capacity}); err != nil {
				t.Fatal(err)
			}
		}
		wantLines(t, to, "ConfigNode")
		if err := c.Nodes.Delete(t.Context(), a.id); err != nil {
			t.Fatal(err)
		}
		wantLines(t, to, "DeleteNode")
		if err := c.Nodes.Disjoin(t.Context(), b.id, b.cred); err != nil {
			t.Fatal(err)
		}
		wantLines(t, to, "NodeUnregistered")
	})
}

func TestEventsOfTemplates(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		a := c.join("mac-1", 1)
		id := c.distribute()
		wantLines(t, to, "DistributeTemplateToNodes")
		a.cacheJob(api.CacheJobPull)
		for range 2 { // a repeated report causes one event
			a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone})
		}
		synctest.Wait()
		want := fmt.Sprintf(
			`{"instance_id":"","machineName":"host","name":"TemplatePulled","node_id":"%s","request_id":"%s","sub_type":"templateAction","tag":"v1",`+
				`"template_id":"%s","template_name":"base","time":%d,"type":"systemAction","version":0}`, a.id, id,
			templateID, time.Now().Unix())
		if len(to.got) != 1 || string(to.got[0].Record) != want {
			t.Errorf("got %s, want %s", to.got, want)
		}
		to.clear()
		if err := c.Templates.Delete(t.Context(), templateID); err != nil {
			t.Fatal(err)
		}
		wantLines(t, to, "DeleteRegistryVm")
		c.shelf.setDown(true)
		if err := c.Templates.Delete(t.Context(), templateID); err == nil {
			t.Error("deleted without a registry")
		}
		wantLines(t, to)
	})
}

// TestEventsAreSentAgain has a target that fails, and one that recovers in the middle of a batch:
// nothing is lost, and nothing that arrived is sent twice.
func TestEventsAreSentAgain(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		to.failing(func(events.EncodedEvent) error { return errors.New("away") })
		ids := c.mustStart(StartRequest{Count: 5})
		time.Sleep(10 * time.Minute)
		wantLines(t, to)
		to.failing(func(e events.EncodedEvent) error {
			if e.Subject == ids[3] {
				return errors.New("away again")
			}
			return nil
		})
		time.Sleep(2 * time.Minute)
		wantLines(t, to, "StartVM", "StartVM", "StartVM", "StartVM")
		to.failing(nil)
		time.Sleep(2 * time.Minute)
		wantLines(t, to, "StartVM")
	})
}

// TestOneThatFailsHoldsUpNoOther: an event that never arrives does not delay those of other
// subjects, however many they are, and only its subject's are missing in the end.
func TestOneThatFailsHoldsUpNoOther(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		to.failing(func(e events.EncodedEvent) error {
			if e.Subject == "7" {
				return errors.New("never")
			}
			return nil
		})
		const many = 5 * 256 // several batches
		c.sayMany(many)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := len(to.lines()); got != many-1 {
			t.Errorf("%d of %d arrived", got, many-1)
		}
		c.sayMany(fewEvents)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		told, dropped := 0, 0
		for _, e := range to.got {
			var v struct {
				Name  string
				Count int
			}
			if err := json.Unmarshal(e.Record, &v); err != nil {
				t.Fatal(err)
			}
			switch {
			case v.Name == string(farm.EventsDropped):
				dropped += v.Count
			case !slices.Contains(ofSilence, farm.EventName(v.Name)):
				told++
			}
		}
		if told != many+fewEvents-2 || dropped < 2 { // those being sent when they are dropped count too
			t.Errorf("%d arrived and %d were dropped", told, dropped)
		}
	})
}

// TestATargetThatFailsNowAndThen: a target that fails from time to time gets its events without
// long pauses.
func TestATargetThatFailsNowAndThen(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		calls := 0
		to.failing(func(events.EncodedEvent) error {
			if calls++; calls%8 == 0 {
				return errors.New("now and then")
			}
			return nil
		})
		c.sayMany(1000)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := len(to.lines()); got != 1000 {
			t.Errorf("%d of 1000 arrived", got)
		}
	})
}

// TestEventsSurviveARestart ends the controller while events wait, and while some have arrived.
func TestEventsSurviveARestart(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		opts := Options{Events: events.Options{Machine: "host", Push: to}}
		c.mustStart(StartRequest{})
		wantLines(t, to, "StartVM")
		to.failing(func(events.EncodedEvent) error { return errors.New("away") })
		c.mustStart(StartRequest{Count: 2})
		c.stop()
		to.failing(nil)
		c.start(opts)
		wantLines(t, to, "StartVM", "StartVM")
		c.stop()
		c.start(opts)
		wantLines(t, to)
	})
}

// TestEventsOfTwoReplicas: the replica without the lease accepts requests, and the other one
// delivers the events.
func TestEventsOfTwoReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, to := &cloud{t: t, shelf: &shelf{}, backend: mem.New()}, &cloud{t: t}, &inbox{}
		opts := Options{Events: events.Options{Machine: "host", Push: to}}
		first.start(opts)
		synctest.Wait()
		second.shelf, second.backend = first.shelf, first.backend
		second.start(opts)
		id := second.mustStart(StartRequest{})[0]
		wantLines(t, to, "StartVM")
		if err := first.Instances.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		wantLines(t, to, "TerminateVM Scheduling")
		first.stop()
		time.Sleep(5 * time.Second)
		wantLines(t, to, "VMTerminated Terminated")
		second.stop()
	})
}

// TestNodeStateEvents: one node that goes and returns causes an event each; of many nodes that go
// together, the first ones have an event each and one event has the others.
func TestNodeStateEvents(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		a := c.join("mac-1", 2)
		wantStates := func(want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, e := range to.got {
				if e.Subject == a.id {
					var v struct{ Name string }
					fine(t, json.Unmarshal(e.Record, &v))
					got = append(got, v.Name)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("events %v, want %v", got, want)
			}
			to.clear()
		}
		wantStates() // that a new node is no longer Offline is not an event
		time.Sleep(3 * time.Minute)
		wantStates("NodeOffline")
		a.contact()
		wantStates("NodeRecovered")

		const nodes = 40
		agents := make([]*agent, nodes)
		for i := range agents {
			agents[i] = c.join(fmt.Sprintf("n%02d", i), 2)
		}
		to.clear()
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		counts, summarized := map[string]int{}, 0
		to.mu.Lock()
		for _, e := range to.got {
			var v struct {
				Name    string
				Count   int      `json:"node_count"`
				NodeIDs []string `json:"node_ids"`
				Reason  string
				Since   int64
			}
			if err := json.Unmarshal(e.Record, &v); err != nil {
				t.Fatal(err)
			}
			counts[v.Name]++
			summarized += v.Count
			if strings.HasPrefix(v.Name, "Node") && (v.Reason == "" || v.Since == 0 || len(v.NodeIDs) != v.Count) {
				t.Errorf("event %s", e.Record)
			}
		}
		to.mu.Unlock()
		single, many := counts["NodeOffline"], counts["NodesOffline"]
		if single+summarized != nodes+1 || single > 20 || many < 1 || many > 2 {
			t.Errorf("%d single events, %d summaries of %d nodes", single, many, summarized)
		}
	})
}
