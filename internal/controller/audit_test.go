package controller

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/cachejobs"
	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/controller/reconcile"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/periodic"
	"github.com/buildyard/buildyard/internal/store/mem"
)

type actorKey struct{}

// anna is the caller of the requests in these tests.
var anna = farm.Actor{User: "anna", KeyID: "ci", Address: "192.0.2.1", RequestID: "4f"}

func actorOf(ctx context.Context) farm.Actor {
	a, _ := ctx.Value(actorKey{}).(farm.Actor)
	return a
}

// told returns the caller of each event that arrived, by the event's name.
func (b *inbox) told() map[string]farm.Actor {
	b.mu.Lock()
	defer b.mu.Unlock()
	by := map[string]farm.Actor{}
	for _, e := range b.got {
		var v struct {
			Name string
			farm.Actor
		}
		if err := json.Unmarshal(e.Record, &v); err != nil {
			panic(err)
		}
		by[v.Name] = v.Actor
	}
	return by
}

// TestEventsNameTheCaller: the events of requested changes name the caller, and no others do.
func TestEventsNameTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, to := &cloud{t: t, shelf: &shelf{}, backend: mem.New()}, &inbox{}
		c.start(Options{Events: events.Options{Machine: "host", Push: to, Actor: actorOf}})
		defer func() { c.stop() }()
		ctx := context.WithValue(t.Context(), actorKey{}, anna)
		a, b := c.join("mac-1", 2), c.join("mac-2", 1)

		ids, err := c.Start(ctx,
			StartRequest{TemplateID: templateID, Count: 1, Options: farm.StartOptions{PinnedNode: a.id}})
		fine(t, err)
		a.say(a.take(api.OrderStart), api.PhaseRunning)
		fine(t, c.Instances.Terminate(ctx, ids[0]))
		a.say(a.take(api.OrderTerminate), api.PhaseTerminated)
		capacity := 3
		fine(t, c.Nodes.Configure(ctx, a.id, nodes.Config{Capacity: &capacity}))
		_, err = c.CacheJobs.Distribute(ctx, cachejobs.DistributeRequest{TemplateID: templateID, Tag: "v1"})
		fine(t, err)
		fine(t, c.Templates.Delete(ctx, templateID))
		fine(t, c.Nodes.Delete(ctx, a.id))
		fine(t, c.Nodes.Disjoin(ctx, b.id, b.cred))
		synctest.Wait()

		by := to.told()
		for name, kind := range farm.EventKinds {
			got, came := by[string(name)]
			switch name {
			case farm.EventVMFailedToStart, farm.EventTemplatePulled, farm.EventAudit:
				continue
			}
			want := farm.Actor{}
			if kind == farm.APIAction {
				want = anna
			}
			if !came || got != want {
				t.Errorf("%s: came %t, by %+v, want %+v", name, came, got, want)
			}
		}
	})
}

// TestLateDeletionNamesTheCaller: the event names the caller, though the process that received the
// request has died since.
func TestLateDeletionNamesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, to := &cloud{t: t, shelf: &shelf{}, backend: mem.New()}, &inbox{}
		opts := Options{Events: events.Options{Machine: "host", Push: to, Actor: actorOf}}
		c.start(opts)
		c.shelf.lost = true
		if c.Templates.Delete(context.WithValue(t.Context(), actorKey{}, anna), templateID) == nil {
			t.Fatal("the answer of the registry should have been lost")
		}
		c.stop()
		c.shelf.gone = true
		c.start(opts)
		time.Sleep(2*time.Minute + 2*reconcile.SweepInterval)
		if by := to.told()["DeleteRegistryVm"]; by != anna {
			t.Errorf("by %+v", by)
		}
		c.stop()
	})
}

func TestRecord(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		event := farm.Event{Name: farm.EventAudit, Actor: anna, Extra: map[string]any{"verb": "POST"}}
		fine(t, c.Events.Append(t.Context(), event, event))
		fine(t, c.Events.Append(t.Context()))
		wantLines(t, to, "Audit", "Audit")
	})
	inCloud(t, func(t *testing.T, c *cloud) {
		fine(t, c.Events.Append(t.Context(), farm.Event{Name: farm.EventAudit}))
		if n := c.tables.Events.Len(); n != 0 {
			t.Errorf("%d records while events are off", n)
		}
	})
}

// TestOneReplicaRunsTheJobs: the background jobs run on the replica with the lease, and then on
// the other one.
func TestOneReplicaRunsTheJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var did [2]atomic.Int64
		backend, end := mem.New(), [2]*cloud{}
		for i := range end {
			end[i] = &cloud{t: t, shelf: &shelf{}, backend: backend}
			job := periodic.Job{What: "keys", Every: 5 * time.Second, Do: func(context.Context) error {
				did[i].Add(1)
				return nil
			}}
			end[i].start(Options{LeaderJobs: []periodic.Job{job}})
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		if a, b := did[0].Load(), did[1].Load(); a < 11 || a > 13 || b != 0 {
			t.Errorf("they did the chore %d and %d times in a minute", a, b)
		}
		end[0].stop()
		before := did[0].Load()
		time.Sleep(time.Minute)
		if a, b := did[0].Load(), did[1].Load(); a != before || b < 10 || b > 13 {
			t.Errorf("the first did it %d times after its end, the other %d times", a-before, b)
		}
		end[1].stop()
	})
}

func fine(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
