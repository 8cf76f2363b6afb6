package chart

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
)

// newSeries returns a series of one point a minute; a negative number is a minute without a report.
func newSeries(running ...float64) *api.Series {
	from := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	s := &api.Series{Step: 60, From: from, To: from.Add(time.Duration(len(running)-1) * time.Minute)}
	for i, n := range running {
		if n >= 0 {
			s.Points = append(s.Points, api.SeriesPoint{Time: from.Add(time.Duration(i) * time.Minute), Running: n})
		}
	}
	return s
}

func running(p *api.SeriesPoint) *float64 { return &p.Running }

// TestGaps: a span without reports interrupts the line and is named; a single report between gaps is visible.
func TestGaps(t *testing.T) {
	c := New("Running", "n", newSeries(1, 2, -1, -1, 3, -1, 2, 2), Column{Name: "running", Value: running})
	if len(c.Gaps) != 2 || c.Gaps[0].Text != "no report for 2 m 00 s" || c.Gaps[1].Text != "no report for 1 m 00 s" {
		t.Errorf("gaps: %+v", c.Gaps)
	}
	line := c.Lines[0].Line
	if n := strings.Count(line, "M"); n != 3 {
		t.Errorf("%d parts of the line, want 3: %s", n, line)
	}
	if !strings.Contains(line, "m0 0h4M") {
		t.Errorf("the single report has no length: %s", line)
	}
	last := New("Running", "n", newSeries(-1, -1, 3), Column{Name: "running", Value: running}).Lines[0].Line
	if last != "M600.0 0.0m-4 0h4" {
		t.Errorf("the newest report is outside the picture: %s", last)
	}
}

// TestOutages: spans with Offline nodes are marked and named, as high as the share of these nodes.
func TestOutages(t *testing.T) {
	s := newSeries(4, 4, 2, 2, 0, 4)
	for i, offline := range []int{0, 0, 1, 1, 4, 0} {
		active := 4 - offline
		s.Points[i].OfflineNodesMax, s.Points[i].ActiveNodesMin = &offline, &active
	}
	want := []Outage{
		{200, chartHeight * 3 / 4, 200, chartHeight / 4, "1 node Offline for 2 m 00 s"},
		{400, 0, 100, chartHeight, "4 nodes Offline for 1 m 00 s"},
	}
	if got := New("Running", "n", s, Column{Name: "running", Value: running}).Outages; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := New("Running", "n", newSeries(1, -1, 2), Column{Name: "running", Value: running}).Outages; got != nil {
		t.Errorf("without counted nodes: %+v", got)
	}
}

// TestGrid: the lines of the grid are at round numbers, the highest value is below the top one.
func TestGrid(t *testing.T) {
	for _, c := range []struct {
		unit    string
		highest float64
		want    string
	}{
		{"n", 0, "2 1 0"},
		{"n", 7, "8 6 4 2 0"},
		{"n", 1300, "1\u202f500 1\u202f000 500 0"},
		{"s", 200, "4 min 3 min 2 min 60 s 0 s"},
		{"%", .97, "100 % 75 % 50 % 25 % 0 %"},
	} {
		ticks := New("", c.unit, newSeries(c.highest, 0), Column{Value: running}).YTicks
		if got := strings.Join(ticks, " "); got != c.want {
			t.Errorf("up to %g %s: %s, want %s", c.highest, c.unit, got, c.want)
		}
	}
}

// TestTimeline: each phase lasts until the next one begins, and the last one of a live instance until now.
func TestTimeline(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	line := NewTimeline(begin.Add(20*time.Second), begin, []api.Transition{
		{State: "Pulling", Phase: "pulling", Time: begin.Add(2 * time.Second)},
		{State: "Started", Phase: "running", Time: begin.Add(10 * time.Second)},
	}, time.Time{})
	var got []string
	for _, e := range line.Entries {
		got = append(got, e.Label())
	}
	if strings.Join(got, ", ") != "Waiting for a slot: 2 s, Pulling: 8 s, Running: 10 s" {
		t.Error(got)
	}
	if line.Summary != "ready 10 s after the request" {
		t.Error(line.Summary)
	}
	last := line.Entries[2]
	if last.X+last.Width > timelineWidth || line.Entries[0].X != 0 {
		t.Errorf("bars outside the picture: %+v", line.Entries)
	}
}
