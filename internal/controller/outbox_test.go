package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// dying is the backend of a process that dies after a number of commits: the last one may have been
// applied or not, and no later one is.
type dying struct {
	store.Backend
	mu    sync.Mutex
	left  int
	after bool // the last commit was applied
	dead  bool
	ops   int // that a transaction may have; 0: as many as the backend allows
}

func (d *dying) Limits() store.Limits {
	limits := d.Backend.Limits()
	limits.MaxOps = cmp.Or(d.ops, limits.MaxOps)
	return limits
}

var errDead = fmt.Errorf("%w: dead", store.ErrUnavailable)

func (d *dying) Commit(ctx context.Context, txn store.Txn) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return 0, errDead
	}
	if d.left > 0 {
		d.left--
		return d.Backend.Commit(ctx, txn)
	}
	d.dead = true
	if d.after {
		_, _ = d.Backend.Commit(ctx, txn)
	}
	return 0, errDead
}

// TestEventsSurviveADeathAtAnyCommit lets the process of a controller die at each of its commits,
// before and after it takes effect, while an instance is started and terminated. When the next
// process is done, exactly the events that the records imply have been sent, in order.
func TestEventsSurviveADeathAtAnyCommit(t *testing.T) {
	const steps = 24 // more than it needs
	survived := 0
	for step := range steps {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/%t", step, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { survived += dieAt(t, step, after) })
			})
		}
	}
	if survived == 0 || survived == 2*steps {
		t.Errorf("%d of %d processes lived to the end", survived, 2*steps)
	}
}

// dieAt returns 1 when the process finished its work.
func dieAt(t *testing.T, step int, after bool) int {
	to, durable := &inbox{}, mem.New()
	backend := &dying{Backend: durable, left: 1 << 30, after: after}
	c := &cloud{t: t, shelf: &shelf{}}
	opts := Options{Events: events.Options{Machine: "host", Push: to}}
	st, run := c.open(backend, opts)
	synctest.Wait()
	backend.mu.Lock()
	backend.left = step
	backend.mu.Unlock()
	ids, err := c.Start(t.Context(),
		StartRequest{TemplateID: templateID, Count: 1, Options: farm.StartOptions{Priority: 5}})
	if err == nil {
		time.Sleep(1100 * time.Millisecond)
		_ = c.Instances.Terminate(t.Context(), ids[0])
		time.Sleep(3 * time.Second)
	}
	backend.mu.Lock()
	lived := !backend.dead
	backend.mu.Unlock()
	run()
	_ = st.Close()

	c.backend = durable
	c.start(opts)
	time.Sleep(5 * time.Second)
	var want []string
	for _, inst := range c.tables.Instances.All() {
		want = []string{"StartVM"} // Terminating does not last so long
		if inst.State != farm.Scheduling {
			t.Errorf("an instance is %s", inst.State)
		}
	}
	for range c.tables.History.All() {
		want = []string{"StartVM", "TerminateVM Scheduling", "VMTerminated Terminated"}
	}
	c.stop()
	told := slices.Compact(to.lines()) // the last one may have been sent twice
	seen := map[string]bool{}
	once := slices.DeleteFunc(told, func(line string) bool {
		twice := seen[line]
		seen[line] = true
		return twice
	})
	if !slices.Equal(once, want) {
		t.Errorf("told %v, the records say %v", once, want)
	}
	if lived {
		return 1
	}
	return 0
}

// open starts a controller on any backend; run ends it.
func (c *cloud) open(backend store.Backend, opts Options) (st *store.Store, run func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tables := record.NewTables(nil)
	st, err := store.Open(ctx, backend, store.Options{Tables: tables.All()})
	if err != nil {
		c.t.Fatal(err)
	}
	opts.Registry, opts.RegistryAddress = c.shelf, "http://registry"
	if c.Controller, err = New(ctx, st, tables, opts); err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	return st, func() { cancel(); <-done }
}

// sayMany writes n events, ten per record.
func (c *cloud) sayMany(n int) {
	c.t.Helper()
	for i := 0; i < n; i += 10 {
		var list []farm.Event
		for k := range 10 {
			list = append(list,
				farm.Event{Name: farm.EventConfigNode, Extra: map[string]any{"node_id": strconv.Itoa(i + k)}})
		}
		if err := c.Events.Append(c.t.Context(), list...); err != nil {
			c.t.Fatal(err)
		}
	}
	synctest.Wait()
}

// storedEvents counts the events in the store.
func (c *cloud) storedEvents() (n int) {
	for _, batch := range c.tables.Events.All() {
		n += len(batch.Lines)
	}
	return n
}

// TestTooManyEvents has a target that is unreachable for long: the oldest events are removed, and
// the next event it receives has their number; the reachable target misses none.
func TestTooManyEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away, file := &inbox{}, &inbox{}
		c := &cloud{t: t, shelf: &shelf{}, backend: mem.New()}
		const most = 4000
		c.start(Options{Events: events.Options{Machine: "host", Push: away, File: file, MaxStored: most}})
		defer func() { c.stop() }()
		away.failing(func(events.EncodedEvent) error { return errors.New("away") })
		const many = most + 3000
		c.sayMany(many)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := c.storedEvents(); n > most {
			t.Errorf("%d events in %d records", n, c.tables.Events.Len())
		}
		if alarms := c.Status(t.Context()).Alarms; len(alarms) != 1 ||
			!strings.Contains(alarms[0], "events are waiting for delivery (push)") {
			t.Errorf("alarms: %v", alarms)
		}
		away.failing(nil)
		time.Sleep(5 * time.Minute)
		if alarms := c.Status(t.Context()).Alarms; len(alarms) != 0 {
			t.Errorf("alarms when all have arrived: %v", alarms)
		}
		wasTold := func(b *inbox) (told, dropped int) {
			for _, e := range b.got {
				var v struct {
					Name, Target string
					Count        int
				}
				if err := json.Unmarshal(e.Record, &v); err != nil {
					t.Fatal(err)
				}
				if slices.Contains(ofSilence, farm.EventName(v.Name)) {
					continue
				}
				if v.Name != string(farm.EventsDropped) {
					told++
				} else if dropped += v.Count; v.Target != "push" {
					t.Errorf("a drop for %q", v.Target)
				}
			}
			return told, dropped
		}
		if told, dropped := wasTold(away); told+dropped != many || dropped < many-most {
			t.Errorf("%d events were told and %d dropped, of %d", told, dropped, many)
		}
		if told, _ := wasTold(file); told != many {
			t.Errorf("%d events are in the file, of %d", told, many)
		}
		const recent, batch = 1000, 100 // events that stay, and records that are removed at a time
		if n := c.storedEvents(); n < recent || n > recent+10*batch {
			t.Errorf("%d events are kept when all have arrived", n)
		}
	})
}

// TestRecentEvents reads the events as a client does.
func TestRecentEvents(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, _ *inbox) {
		ask := func(q events.Query) []events.LoggedEvent {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			list, err := c.Events.Recent(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		c.sayMany(50)
		all := ask(events.Query{Limit: 1000})
		if len(all) != 50 || len(ask(events.Query{Limit: 7})) != 7 || ask(events.Query{Limit: 7})[0].ID != all[43].ID {
			t.Fatalf("%d events", len(all))
		}
		var paged []events.LoggedEvent
		for after := "1-1"; len(paged) < 50; after = paged[len(paged)-1].ID {
			paged = append(paged, ask(events.Query{After: after, Limit: 7})...)
		}
		if !slices.EqualFunc(all, paged, func(a, b events.LoggedEvent) bool { return a.ID == b.ID }) {
			t.Error("pages differ from the whole")
		}
		begun := time.Now()
		if got := ask(events.Query{After: all[49].ID, Limit: 5}); len(got) != 0 || time.Since(begun) != 30*time.Second {
			t.Errorf("%d events after the last, after %s", len(got), time.Since(begun))
		}
		go func() {
			time.Sleep(10 * time.Second)
			c.mustStart(StartRequest{})
		}()
		begun = time.Now()
		got := ask(events.Query{After: all[49].ID, Limit: 5, Match: func(e events.LoggedEvent) bool {
			return e.Field("name") == "StartVM"
		}})
		if len(got) != 1 || time.Since(begun) != 10*time.Second {
			t.Errorf("%d events that were waited for, after %s", len(got), time.Since(begun))
		}
		for _, bad := range []string{"x", "1", "1-x", "-1-1", "!-1"} {
			if _, err := c.Events.Recent(t.Context(),
				events.Query{After: bad, Limit: 1}); farm.CodeOf(err) != farm.CodeInvalid {
				t.Errorf("after %s: %v", bad, err)
			}
		}
	})
}

func TestNoEvents(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		id := c.mustStart(StartRequest{})[0]
		if err := c.Instances.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Events.Recent(t.Context(), events.Query{Limit: 1}); farm.CodeOf(err) != farm.CodeRefused {
			t.Error(err)
		}
		if c.tables.Events.Len() != 0 || c.store.Limits() != c.store.Store.Limits() {
			t.Error("there are events though nobody wants any")
		}
	})
}
