package controller

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/history"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
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
		c.wantState(id, farm.Gone)
		list := c.past(history.Query{ID: id})
		if len(list) != 1 {
			t.Fatalf("history = %+v", list)
		}
		p := list[0]
		if got := path(p); got != "Pulling Scheduling Started Error Terminating Terminated " {
			t.Errorf("transitions: %s", got)
		}
		if p.Transitions[3].Why != "The VM stopped without being asked to" {
			t.Errorf("reason of the error: %q", p.Transitions[3].Why)
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

func TestPagesOfTheHistory(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		var want []string
		for i := range 25 {
			p := &farm.InstanceHistory{ID: fmt.Sprintf("id-%02d",
				i), ExternalID: fmt.Sprint(i % 2), Finished: c.now().Add(time.Duration(i) * time.Millisecond)}
			if err := c.store.Commit(t.Context(),
				store.Put(c.tables.History, record.HistoryKey(p), p, store.Any)); err != nil {
				t.Fatal(err)
			}
			want = append([]string{p.ID}, want...)
		}
		pages := func(q history.Query) (got []string) {
			for q.Limit = 4; ; q.After = got[len(got)-1] {
				list := c.past(q)
				for _, p := range list {
					got = append(got, p.ID)
				}
				if len(list) < 4 {
					return got
				}
			}
		}
		if got := pages(history.Query{}); !slices.Equal(got, want) {
			t.Errorf("pages = %v", got)
		}
		odd := slices.DeleteFunc(slices.Clone(want), func(id string) bool { return id[len(id)-1]%2 == 0 })
		if got := pages(history.Query{ExternalID: "1"}); !slices.Equal(got, odd) {
			t.Errorf("pages of one external id = %v", got)
		}
		// The oldest entries are removed from the history; the instances that still exist have
		// finished later.
		last := want[len(want)-1]
		for key := range c.tables.History.Where(record.ByInstance, last) {
			if err := c.store.Commit(t.Context(), store.Delete(c.tables.History, key, store.Any)); err != nil {
				t.Fatal(err)
			}
		}
		if list := c.past(history.Query{After: last}); len(list) != 0 {
			t.Errorf("after one that is forgotten: %+v", list)
		}
		lives := c.mustStart(StartRequest{})[0]
		if list := c.past(history.Query{After: lives}); len(list) != len(want)-1 {
			t.Errorf("after one that lives: %d records", len(list))
		}
	})
}

func TestHistoryIsBounded(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		const most = history.MaxRemovals + 1000
		c.bounded(bounds{past: most})
		begin := c.now()
		put := func(n int, at time.Time) {
			var changes []store.Change
			for i := range n {
				p := &farm.InstanceHistory{ID: fmt.Sprint(at.Unix(), "-", i), Finished: at.Add(time.Duration(i))}
				changes = append(changes, store.Put(c.tables.History, record.HistoryKey(p), p, store.Any))
				if len(changes) == record.TxnChanges || i == n-1 {
					if err := c.store.Commit(t.Context(), changes...); err != nil {
						t.Fatal(err)
					}
					changes = nil
				}
			}
		}
		put(most, begin)
		put(history.MaxRemovals+150, begin.Add(time.Hour))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := c.tables.History.Len(); n != most {
			t.Errorf("%d records are kept", n)
		}
		if list := c.past(history.Query{ID: fmt.Sprint(begin.Unix(), "-", history.MaxRemovals+149)}); len(list) != 0 {
			t.Error("the oldest did not go first")
		}
		if list := c.past(history.Query{ID: fmt.Sprint(begin.Unix(), "-", history.MaxRemovals+150)}); len(list) != 1 {
			t.Error("more than the oldest went")
		}
		before := c.now().Add(24*time.Hour - 7*time.Second)
		c.away(23 * time.Hour)
		time.Sleep(before.Sub(c.now()))
		synctest.Wait()
		if n := c.tables.History.Len(); n != most {
			t.Errorf("%d records are kept after a day but two seconds", n)
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if n := c.tables.History.Len(); n != history.MaxRemovals+150 {
			t.Errorf("%d records are kept after a day", n)
		}
	})
}
