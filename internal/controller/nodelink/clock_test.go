package nodelink

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// TestNodeClock: the offset is the median of the last polls, and known after three.
func TestNodeClock(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		offsets []time.Duration
		want    time.Duration
		known   bool
	}{
		"none":           {},
		"two":            {offsets: []time.Duration{time.Minute, time.Minute}},
		"ahead":          {[]time.Duration{time.Minute, time.Minute, time.Minute}, time.Minute, true},
		"behind":         {[]time.Duration{-time.Hour, -time.Hour, -time.Hour}, -time.Hour, true},
		"delayed once":   {[]time.Duration{0, 0, -20 * time.Second, 0, 0}, 0, true},
		"corrected":      {[]time.Duration{9e9, 9e9, 9e9, 9e9, 9e9, 0, 0, 0}, 0, true},
		"small":          {[]time.Duration{4e8, 4e8, 4e8}, 0, true},
		"far in the end": {[]time.Duration{1 << 62, 1 << 62, 1 << 62}, maxClockOffset.Round(time.Second), true},
	} {
		var c nodeClock
		for _, d := range tc.offsets {
			c.add(now.Add(d), now)
		}
		c.add(time.Time{}, now) // an agent that names no time
		if got, known := c.offset(); got != tc.want || known != tc.known {
			t.Errorf("%s: %s, %t; want %s, %t", name, got, known, tc.want, tc.known)
		}
	}
}

// TestClockAlarms: a node whose clock differs is named while it is in contact.
func TestClockAlarms(t *testing.T) {
	withLink(t, func(t *testing.T, l *testLink) {
		right, wrong := l.addNode(), l.addNode()
		l.commit(store.Put(l.db.Tables.Nodes, wrong, renamed(l, wrong), store.Any))
		for range minClockSamples {
			poll := func(node string, offset time.Duration) {
				text := idlePoll(node, func(*api.PollRequest) {})
				if _, err := l.PollRaw(t.Context(), credential, text, time.Now().Add(offset), 0); err != nil {
					t.Fatal(err)
				}
			}
			poll(right, time.Second)
			poll(wrong, -time.Minute)
		}

		list := l.Sessions.ClockAlarms()
		if len(list) != 1 || list[0].Name != api.AlarmNodeClock || list[0].Subject != wrong ||
			!strings.HasPrefix(list[0].Message, "The clock of node late is 1m0s behind the controller's") {
			t.Errorf("alarms %+v", list)
		}
		if offset, known := l.Sessions.ClockOffset(right); offset != time.Second || !known {
			t.Errorf("offset %s, known %t", offset, known)
		}

		time.Sleep(ContactGap + time.Second)
		if list := l.Sessions.ClockAlarms(); len(list) != 0 {
			t.Errorf("without contact: %+v", list)
		}
	})
}

func renamed(l *testLink, node string) *farm.Node {
	n, _, _ := l.db.Tables.Nodes.Get(node)
	out := n.Clone()
	out.Name = "late"
	return out
}

// TestManyClockAlarms: many nodes with wrong clocks have one alarm for those beyond the first.
func TestManyClockAlarms(t *testing.T) {
	withLink(t, func(t *testing.T, l *testLink) {
		for range maxClockAlarms + 3 {
			s := l.Sessions.session(l.addNode())
			if err := s.recordContact("boot", l.db.Now()); err != nil {
				t.Fatal(err)
			}
			for range minClockSamples {
				s.recordClock(l.db.Now().Add(time.Hour), l.db.Now())
			}
		}
		list := l.Sessions.ClockAlarms()
		want := fmt.Sprintf("The clocks of %d more nodes", 3)
		if len(list) != maxClockAlarms+1 || !strings.HasPrefix(list[maxClockAlarms].Message, want) {
			t.Errorf("%d alarms, the last %+v", len(list), list[len(list)-1])
		}
	})
}
