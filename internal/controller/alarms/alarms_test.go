package alarms

import (
	"context"
	"fmt"
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
type fakeRegistry struct{ disk atomic.Pointer[api.DiskInfo] }

var _ Registry = (*fakeRegistry)(nil)

func (r *fakeRegistry) DiskInfo(context.Context) (api.DiskInfo, error) { return *r.disk.Load(), nil }

// run starts the alarms of sources and disks, until the test ends.
func run(t *testing.T, db record.DB, registry *fakeRegistry, sources ...Source) *Alarms {
	disks := NewDisks(db, registry)
	a := New(db, disks, append(sources, disks.Alarms)...)
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
		if len(list) != 1 || list[0].Message != second || list[0].Action == "" {
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
		if got := DiskLow(c.free, c.total); got != c.want {
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
