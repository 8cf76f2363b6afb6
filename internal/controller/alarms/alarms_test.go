package alarms

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// fakeRegistry has a disk that the test changes.
type fakeRegistry struct {
	disk atomic.Pointer[api.DiskInfo]
	away atomic.Bool
}

var _ Registry = (*fakeRegistry)(nil)

func (r *fakeRegistry) DiskInfo(context.Context) (api.DiskInfo, error) {
	if r.away.Load() {
		return api.DiskInfo{}, errors.New("refused")
	}
	return *r.disk.Load(), nil
}

func noGroups() []NodelessGroup { return nil }

// run starts the alarms of sources and disks, until the test ends.
func run(t *testing.T, db record.DB, registry *fakeRegistry, sources ...Source) *Alarms {
	disks := NewDisks(db, registry, 10<<30)
	queue := NewQueue(func() (int, time.Duration) { return 0, 0 }, noGroups)
	a := New(db, Options{Disks: disks, Queue: queue, Sources: append(sources, disks.Alarms)})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go a.Run(ctx)
	return a
}

// TestAlarms: an alarm reports since when it has been active, and starts again after it has ended.
func TestAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var message atomic.Pointer[string]
		none, first, second := "", "one", "two"
		message.Store(&none)
		source := FromMessage("no_authentication", func() string { return *message.Load() }, "Switch it on.")
		registry := &fakeRegistry{}
		registry.disk.Store(&api.DiskInfo{})
		a := run(t, recordtest.Open(t), registry, source)
		if list := a.Active(); list != nil {
			t.Fatalf("alarms at the start: %v", list)
		}

		message.Store(&first)
		time.Sleep(Interval) // without a request for the alarms
		began := time.Now()
		time.Sleep(time.Hour)
		message.Store(&second)
		list := a.Active()
		if len(list) != 1 || list[0].Message != second || list[0].Action == "" || list[0].Urgent {
			t.Fatalf("alarms: %v", list)
		}
		if since := list[0].Since; since.After(began) || since.Before(began.Add(-Interval)) {
			t.Errorf("alarm since %s, want %s", since, began)
		}

		message.Store(&none)
		time.Sleep(Interval)
		synctest.Wait() // the check of this moment has seen the end
		message.Store(&first)
		if list := a.Active(); len(list) != 1 || list[0].Since.Before(began.Add(time.Hour)) {
			t.Errorf("alarms after a pause: %+v", list)
		}
	})
}

// TestDiskLow: on a small disk, of which an eighth is kept free, the alarm starts before that.
func TestDiskLow(t *testing.T) {
	for _, c := range []struct {
		free, total int64
		want        bool
	}{
		{0, 0, false},
		{0, 5, true},
		{1<<30/8 + 1<<20, 1 << 30, true},
		{1 << 30 / 5, 1 << 30, false},
		{10<<30 - 1, 100 << 30, true},
		{10 << 30, 100 << 30, false},
	} {
		if got := DiskLow(c.free, c.total, 10<<30); got != c.want {
			t.Errorf("%d of %d free is low: %t", c.free, c.total, got)
		}
	}
}

// TestDiskAlarms: alarms are raised for the disks of the registry and of nodes before they are full,
// for a bounded number of nodes that are not offline.
func TestDiskAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := recordtest.Open(t)
		registry := &fakeRegistry{}
		registry.disk.Store(&api.DiskInfo{Total: 50 << 30, Free: 11 << 30})
		a := run(t, db, registry)
		names := func() (names []string) {
			time.Sleep(Interval + time.Second)
			for _, alarm := range a.Active() {
				names = append(names, strings.TrimSpace(alarm.Name+" "+alarm.Subject))
			}
			return names
		}
		put := func(id string, state farm.NodeState, free int64) {
			t.Helper()
			node := &farm.Node{ID: id, Name: id, State: state}
			info := &farm.NodeInfo{NodeID: id, DiskSize: 100 << 30, FreeDisk: free}
			if err := db.Store.Commit(t.Context(), store.Put(db.Tables.Nodes, id, node, store.Any),
				store.Put(db.Tables.Infos, id, info, store.Any)); err != nil {
				t.Fatal(err)
			}
		}
		put("a", farm.NodeActive, 11<<30)
		put("b", farm.NodeActive, 9<<30)
		put("c", farm.NodeOffline, 9<<30)
		if got := names(); len(got) != 1 || got[0] != api.AlarmNodeDisk+" b" {
			t.Errorf("alarms: %q", got)
		}
		put("b", farm.NodeActive, 20<<30)
		registry.disk.Store(&api.DiskInfo{Total: 50 << 30, Free: 4 << 30})
		if got := names(); len(got) != 1 || got[0] != api.AlarmRegistryDisk {
			t.Errorf("alarms: %q", got)
		}
		registry.disk.Store(&api.DiskInfo{Total: 50 << 30, Free: 11 << 30})
		if got := names(); len(got) != 0 {
			t.Errorf("alarms: %q", got)
		}

		put("c", farm.NodeOffline, 20<<30)
		for i := range maxNodes + 2 {
			put(fmt.Sprintf("n%02d", i), farm.NodeActive, int64(i)<<20)
		}
		names()
		list := a.Active()
		if len(list) != maxNodes+1 || list[0].Subject != "n00" ||
			!strings.HasPrefix(list[maxNodes].Message, "2 more nodes ") {
			t.Errorf("%d alarms, the last one: %+v", len(list), list[len(list)-1])
		}
	})
}

// TestRegistryAlarm: a registry that does not answer several checks in a row is an alarm until it answers.
func TestRegistryAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := &fakeRegistry{}
		registry.disk.Store(&api.DiskInfo{})
		registry.away.Store(true)
		began := time.Now()
		a := run(t, recordtest.Open(t), registry)
		time.Sleep(Interval + time.Second)
		if list := a.Active(); len(list) != 0 {
			t.Errorf("after two checks: %+v", list)
		}
		time.Sleep(Interval)
		if list := a.Active(); len(list) != 1 || list[0].Name != api.AlarmRegistryAway || !list[0].Since.Equal(began) {
			t.Errorf("after three checks: %+v", list)
		} else if !list[0].Urgent {
			t.Error("the alarm is not urgent")
		}
		registry.away.Store(false)
		time.Sleep(Interval)
		if list := a.Active(); len(list) != 0 {
			t.Errorf("after it has answered: %+v", list)
		}
	})
}

// TestQueueAlarm: the alarm needs a queue that has become longer for minutes, and ends with the wait.
func TestQueueAlarm(t *testing.T) {
	at := time.Now()
	for name, c := range map[string]struct {
		depth  func(minute int) int
		oldest func(minute int) time.Duration
		want   int // the first minute with the alarm; 0: none
		ends   int // the first minute without it again; 0: none
	}{
		"grows": {
			func(m int) int { return m }, func(m int) time.Duration { return time.Duration(m) * time.Minute }, 5, 0,
		},
		"constant": {
			func(int) int { return 9 }, func(m int) time.Duration { return time.Duration(m) * time.Minute }, 0, 0,
		},
		"is served": {func(m int) int { return m }, func(int) time.Duration { return time.Minute }, 0, 0},
		"recovers": {func(m int) int { return 30 - m }, func(m int) time.Duration {
			return time.Duration(max(0, 20-m)) * time.Minute
		}, 0, 0},
		"drains": {
			func(m int) int { return max(0, min(m, 20-m)) },
			func(m int) time.Duration { return time.Duration(m) * time.Minute }, 5, 20,
		},
	} {
		minute := 0
		q := NewQueue(func() (int, time.Duration) { return c.depth(minute), c.oldest(minute) },
			func() []NodelessGroup { return []NodelessGroup{{"g1", "ios", 4}} })
		first, ended := 0, 0
		for ; minute <= 25; minute++ {
			q.sample(at.Add(time.Duration(minute) * time.Minute))
			list := q.Alarms()
			switch {
			case len(list) == 2 && first == 0:
				if first = minute; list[0].Count != c.depth(minute) || list[0].Subject != "" ||
					strings.Contains(list[0].Message+list[0].Action, "ios") || list[1].Subject != "g1" ||
					list[1].Message != "Group ios has no Active node, and instances wait for it: 4" {
					t.Errorf("%s: %+v", name, list)
				}
			case len(list) == 0 && first > 0 && ended == 0:
				ended = minute
			}
		}
		if first != c.want || ended != c.ends {
			t.Errorf("%s: alarm from minute %d to %d, want %d to %d", name, first, ended, c.want, c.ends)
		}
	}
}

// eventLog notes the events of commits.
type eventLog struct{ events []farm.Event }

func (l *eventLog) with(w store.Writer, event func() farm.Event) store.Writer {
	return eventWriter{w, l, event}
}

type eventWriter struct {
	store.Writer
	log   *eventLog
	event func() farm.Event
}

func (w eventWriter) Commit(ctx context.Context, changes ...store.Change) error {
	err := w.Writer.Commit(ctx, changes...)
	if err == nil {
		w.log.events = append(w.log.events, w.event())
	}
	return err
}

// TestAlarmEvents: begin and end of an alarm are written once, also when another leader follows, and
// Since outlives the process.
func TestAlarmEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, log := recordtest.Open(t), &eventLog{}
		var active atomic.Bool
		source := FromMessage("license", func() string {
			if active.Load() {
				return "it expires"
			}
			return ""
		}, "Install one.")
		lead := func() (stop func()) {
			registry := &fakeRegistry{}
			registry.disk.Store(&api.DiskInfo{})
			a := New(db, Options{
				Disks:   NewDisks(db, registry, 10<<30),
				Queue:   NewQueue(func() (int, time.Duration) { return 0, 0 }, noGroups),
				Sources: []Source{source}, WithEvent: log.with,
			})
			ctx, cancel := context.WithCancel(t.Context())
			go a.Record(ctx, recordtest.Term(db))
			return func() {
				cancel()
				synctest.Wait()
			}
		}
		want := func(names ...farm.EventName) {
			t.Helper()
			synctest.Wait()
			var got []farm.EventName
			for _, e := range log.events {
				got = append(got, e.Name)
			}
			if !slices.Equal(got, names) {
				t.Fatalf("events %v, want %v", got, names)
			}
		}
		active.Store(true)
		stop := lead()
		time.Sleep(5 * Interval)
		want(farm.EventAlarmStarted)
		stop()
		since := log.events[0].Extra["since"]

		time.Sleep(time.Hour)
		active.Store(false) // a process that has just started does not find it yet
		stop = lead()
		time.Sleep(Interval + time.Second)
		active.Store(true)
		time.Sleep(5 * Interval)
		want(farm.EventAlarmStarted)
		active.Store(false)
		time.Sleep(3 * Interval)
		want(farm.EventAlarmStarted, farm.EventAlarmEnded)
		ended := log.events[1].Extra
		if ended["since"] != since || ended["alarm"] != "license" || ended["message"] != "it expires" {
			t.Errorf("end: %v", ended)
		}
		active.Store(true)
		time.Sleep(2 * Interval)
		want(farm.EventAlarmStarted, farm.EventAlarmEnded, farm.EventAlarmStarted)
		stop()
	})
}
