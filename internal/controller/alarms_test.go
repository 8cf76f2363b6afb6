package controller

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// TestAlarms: an alarm reports since when it has been active, to every caller, and starts again
// after it has ended.
func TestAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var message atomic.Pointer[string]
		source := func() []api.Alarm {
			if m := message.Load(); m != nil {
				return []api.Alarm{{Name: "no_authentication", Message: *m, Action: "Switch it on."}}
			}
			return nil
		}
		c := &cloud{t: t, shelf: &shelf{}, backend: mem.New()}
		c.start(Options{Alarms: []AlarmSource{source}})
		defer func() { c.stop() }()
		if s := c.Status(t.Context()); s.ActiveAlarms != nil || s.Alarms != nil {
			t.Fatalf("alarms at the start: %v, %v", s.ActiveAlarms, s.Alarms)
		}
		first, second := "one", "two"
		message.Store(&first)
		time.Sleep(alarmLookEvery) // without a request for the status
		began := time.Now()
		time.Sleep(time.Hour)
		message.Store(&second)
		s := c.Status(t.Context())
		if len(s.ActiveAlarms) != 1 || len(s.Alarms) != 1 || s.Alarms[0] != second {
			t.Fatalf("alarms: %v, %v", s.ActiveAlarms, s.Alarms)
		}
		if a := s.ActiveAlarms[0]; a.Since.After(began) || a.Since.Before(began.Add(-alarmLookEvery)) ||
			a.Action == "" {
			t.Errorf("alarm %+v, want one since %s", a, began)
		}
		message.Store(nil)
		time.Sleep(alarmLookEvery)
		synctest.Wait() // the check of this moment has seen the end
		message.Store(&first)
		if a := c.Alarms(); len(a) != 1 || a[0].Since.Before(began.Add(time.Hour)) {
			t.Errorf("alarms after a pause: %+v", a)
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

// TestDiskAlarms: the controller raises alarms for its registry's and its nodes' disks before they
// are full.
func TestDiskAlarms(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b := c.join("a", 1), c.join("b", 1)
		names := func() (names []string) {
			time.Sleep(alarmLookEvery + time.Second)
			for _, alarm := range c.Status(t.Context()).ActiveAlarms {
				names = append(names, alarm.Name+" "+alarm.Subject)
			}
			return names
		}
		free := func(node string, free int64) {
			info, _, _ := c.tables.Infos.Get(node)
			changed := *info
			changed.DiskSize, changed.FreeDisk = 100<<30, free
			if err := c.store.Store.Commit(t.Context(),
				store.Put(c.tables.Infos, node, &changed, store.Any)); err != nil {
				t.Fatal(err)
			}
		}
		free(a.id, 11<<30)
		free(b.id, 9<<30)
		if got := names(); len(got) != 1 || got[0] != api.AlarmNodeDisk+" "+b.id {
			t.Errorf("alarms: %q", got)
		}
		free(b.id, 20<<30)
		c.shelf.setDisk(api.DiskInfo{Total: 50 << 30, Free: 4 << 30})
		synctest.Wait()
		if got := names(); len(got) != 1 || !strings.HasPrefix(got[0], api.AlarmRegistryDisk) {
			t.Errorf("alarms: %q", got)
		}
		c.shelf.setDisk(api.DiskInfo{Total: 50 << 30, Free: 11 << 30})
		if got := names(); len(got) != 0 {
			t.Errorf("alarms: %q", got)
		}
	})
}
