package usage

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// clock is the time of a test.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func testUsage() (*clock, *Usage) {
	c := &clock{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	tables := record.NewTables(func(*farm.Instance) []byte { return nil })
	return c, New(record.DB{Now: c.Now, Tables: tables}, Options{})
}

// run lets time pass with a settlement each sampleEvery.
func (c *clock) run(u *Usage, length time.Duration) {
	for end := c.now.Add(length); c.now.Before(end); {
		c.now = c.now.Add(min(sampleEvery, end.Sub(c.now)))
		u.usageStats.settle()
	}
}

func mustReport(t *testing.T, u *Usage, by, over string) []api.UsageRow {
	t.Helper()
	r, err := u.Report(by, over, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.Rows
}

// TestInstanceHours: exact to the changes of the instances, also those between two settlements.
func TestInstanceHours(t *testing.T) {
	c, u := testUsage()
	a, b := subject{owner: "a", group: "g", template: "t", templateName: "mac"}, subject{owner: "b", template: "t"}
	u.usageStats.runs(a, 1)
	c.run(u, 90*time.Minute)
	c.now = c.now.Add(3 * time.Second)
	u.usageStats.runs(a, 1)
	u.usageStats.runs(b, 1)
	c.now = c.now.Add(3 * time.Second)
	u.usageStats.runs(b, -1)
	c.run(u, 30*time.Minute)
	u.usageStats.runs(a, -2)
	c.run(u, time.Hour)
	hours := map[string]float64{"a": 1.5 + (3+2*3+2*1800)/3600., "b": 3. / 3600}
	for _, over := range []string{api.RangeDay, api.RangeWeek} {
		rows := mustReport(t, u, api.ByOwner, over)
		if len(rows) != 2 || rows[0].Key != "a" || rows[1].Key != "b" {
			t.Fatalf("%s: %+v", over, rows)
		}
		for _, r := range rows {
			if math.Abs(r.InstanceHours-hours[r.Key]) > .001 {
				t.Errorf("%s: %s has %v hours, want %v", over, r.Key, r.InstanceHours, hours[r.Key])
			}
		}
		rows = mustReport(t, u, api.ByTemplate, over)
		if len(rows) != 1 || rows[0].Name != "mac" || math.Abs(rows[0].InstanceHours-hours["a"]-hours["b"]) > .001 {
			t.Errorf("%s: %+v", over, rows)
		}
	}
	if len(u.usageStats.running) != 0 {
		t.Errorf("%d keys still run", len(u.usageStats.running))
	}
}

// TestUsageRanges: usage leaves the ranges, and nothing of it stays in memory.
func TestUsageRanges(t *testing.T) {
	c, u := testUsage()
	inst := &farm.Instance{Owner: "a"}
	u.usageStats.failed(inst)
	u.usageStats.placed(inst, time.Minute)
	u.usageStats.started(inst, 2*time.Minute)
	rows := mustReport(t, u, api.ByOwner, api.RangeDay)
	if len(rows) != 1 || rows[0].Failures != 1 || rows[0].Starts != 1 || math.Abs(*rows[0].QueueP95-60) > 4 ||
		math.Abs(*rows[0].StartP95-120) > 8 {
		t.Errorf("%+v", rows)
	}
	c.now = c.now.Add(25 * time.Hour)
	u.usageStats.settle()
	if d, w := mustReport(t, u, api.ByOwner, api.RangeDay), mustReport(t, u, api.ByOwner, api.RangeWeek); len(d) != 0 ||
		len(w) != 1 {
		t.Errorf("a day later %+v, %+v", d, w)
	}
	c.now = c.now.Add(8 * 24 * time.Hour)
	u.usageStats.settle()
	if w := mustReport(t, u, api.ByOwner, api.RangeWeek); len(w) != 0 {
		t.Errorf("a week later %+v", w)
	}
	for _, r := range u.usageStats.rings {
		if len(r.steps) != 1 {
			t.Errorf("%d steps of %s are in memory", len(r.steps), r.step)
		}
	}
	for _, wrong := range [][2]string{{"node", "24h"}, {"", "24h"}, {"owner", "1h"}, {"owner", ""}} {
		if _, err := u.Report(wrong[0], wrong[1], nil); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

// TestSmallestAreOther: however many keys there are, a step is bounded, and the sums are those of all.
func TestSmallestAreOther(t *testing.T) {
	c, u := testUsage()
	const owners = maxUsageKeys + 500
	for n := range owners {
		for range 1 + n%7 {
			u.usageStats.started(&farm.Instance{Owner: fmt.Sprint("owner-", n)}, time.Second)
		}
	}
	starts := func() (sum int, rows []api.UsageRow) {
		rows = mustReport(t, u, api.ByOwner, api.RangeDay)
		for _, r := range rows {
			sum += r.Starts
		}
		return sum, rows
	}
	before, rows := starts()
	last := rows[len(rows)-1]
	if len(rows) != keptUsageKeys+1 || !last.Other || last.Key != api.UsageOther || rows[0].Starts != 7 ||
		rows[0].Other {
		t.Errorf("%d rows, %+v to %+v", len(rows), rows[0], last)
	}
	want := 0
	for n := range owners {
		want += 1 + n%7
	}
	if before != want {
		t.Errorf("%d starts, want %d", before, want)
	}
	c.run(u, 2*time.Hour)
	if after, _ := starts(); after != want {
		t.Errorf("%d starts when the step has ended, want %d", after, want)
	}
	shown, err := u.Report(api.ByOwner, api.RangeDay, func(key string) bool { return key == "owner-6" })
	if err != nil || len(shown.Rows) != 1 || shown.Rows[0].Starts != 7 {
		t.Errorf("of one that may be shown %+v, %v", shown.Rows, err)
	}
}

// TestRecordedUsage: what is recorded is what is read, and hostile records are refused.
func TestRecordedUsage(t *testing.T) {
	c, u := testUsage()
	inst := &farm.Instance{Owner: "a", Template: farm.TemplateRef{ID: "t", Name: "mac"}}
	u.usageStats.started(inst, time.Minute)
	u.usageStats.placed(inst, time.Second)
	u.usageStats.runs(subject{owner: "a", template: "t", templateName: "mac"}, 1)
	c.run(u, time.Hour)
	other := New(u.db, Options{})
	for _, r := range u.usageStats.rings {
		for at, s := range r.steps {
			other.usageStats.take(&record.SeriesRecord{Step: int64(r.step / time.Second), Usage: s.toRecord(at)})
		}
	}
	for _, by := range dimensions {
		want, got := mustReport(t, u, by, api.RangeWeek), mustReport(t, other, by, api.RangeWeek)
		if len(got) != 1 || !reflect.DeepEqual(want, got) {
			t.Errorf("by %s: %+v, want %+v", by, got, want)
		}
	}
	for _, f := range []record.SeriesRecord{
		{Step: 3600, Usage: &record.UsageStep{At: 1 << 40, Samples: 9999}},
		{Step: 3600, Usage: &record.UsageStep{At: -1, Samples: 9999}},
		{Step: 7, Usage: &record.UsageStep{At: 1, Samples: 9999}},
		{Step: 3600},
	} {
		before := len(other.usageStats.rings[0].steps)
		other.usageStats.take(&f)
		if len(other.usageStats.rings[0].steps) != before {
			t.Errorf("%+v is taken", f.Usage)
		}
	}
}

func BenchmarkSettle(b *testing.B) {
	c, u := testUsage()
	for n := range 20_000 {
		u.usageStats.runs(subject{
			owner: fmt.Sprint(n % 500), group: fmt.Sprint(n % 50), template: fmt.Sprint(n % 100),
		}, 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.now = c.now.Add(sampleEvery)
		u.usageStats.settle()
	}
}
