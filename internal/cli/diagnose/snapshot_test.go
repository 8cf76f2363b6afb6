package diagnose

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
)

// exampleSnapshot is a snapshot of three nodes, of which two are shown, and of pending instances.
func exampleSnapshot() *snapshot {
	s := &snapshot{Time: time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC), PullRate: 3 << 20}
	s.Stats = api.ControllerStats{
		Capacity: 6, CapacityUsed: 3, QueueDepth: 3, OldestWait: 60,
		Instances: map[string]int{"Started": 3, "Error": 1, "Pulling": 0},
	}
	s.addNodes([]api.Node{
		{NodeName: "idle", State: "Active", Capacity: 2, FreeDisk: 5 << 30},
		{NodeName: "busy", State: "Active", Capacity: 2, VMCount: 2, CPUUtil: 0.9, RAMUtil: 0.5},
		{NodeName: "away", State: "Offline", Capacity: 2},
	}, 2)
	pending := func(reason string, age time.Duration) api.InstanceItem {
		return api.InstanceItem{VM: api.Instance{Message: reason, CRTime: s.Time.Add(-age)}}
	}
	s.addPending([]api.InstanceItem{
		pending("all nodes are full", time.Minute), pending("", time.Second),
		pending("all nodes are full", time.Second),
	}, 5)
	s.addInstances([]api.InstanceItem{
		{InstanceID: "id-1", VM: api.Instance{
			InstanceState: "Pulling", Progress: 0.25, TS: s.Time.Add(-5 * time.Second),
		}},
	})
	return s
}

// TestSnapshotTable: the busiest nodes and the most frequent reasons come first.
func TestSnapshotTable(t *testing.T) {
	var out bytes.Buffer
	s := exampleSnapshot()
	if err := cli.Table.Write(&out, s, s.table); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"3 of 6 VMs, 3 pending (oldest 1m0s), 0.0 tasks/s, pulls 3 MiB/s",
		"last hour: 0 starts, 0 failures, 0 terminations; instances: 1 Error, 3 Started",
		"NODE STATE VMS CPU MEMORY DISK FREE",
		"busy Active 2/2 90% 50% 0 B",
		"away Offline 0/2 0% 0% 0 B",
		"and 1 more",
		"PENDING OLDEST REASON",
		"2 1m0s all nodes are full",
		"1 1s not evaluated yet",
		"INSTANCE STATE AGE MESSAGE",
		"id-1 Pulling 25% 5s",
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		if words := strings.Fields(line); len(words) > 0 {
			got = append(got, strings.Join(words, " "))
		}
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("line %d differs; got\n%s\nwant\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestDrawScreen: a screen is drawn over the last one, with no more lines than it has; an error replaces it.
func TestDrawScreen(t *testing.T) {
	var out bytes.Buffer // not a terminal: 24 rows
	s := exampleSnapshot()
	s.Pending = append(s.Pending, make([]pendingReason, 40)...)
	if err := drawScreen(&out, s, nil, true); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.HasPrefix(text, clearScreen+cursorHome) || !strings.HasSuffix(text, clearBelow) ||
		strings.Count(text, "\r\n") != 23 {
		t.Errorf("screen %q", text)
	}
	out.Reset()
	if err := drawScreen(&out, nil, errors.New("no \x1b answer"), false); err != nil {
		t.Fatal(err)
	}
	if want := cursorHome + "no ? answer; retrying" + clearLine + "\r\n" + clearBelow; out.String() != want {
		t.Errorf("screen %q, want %q", out.String(), want)
	}
}

// TestLastPullRate: the rate is of the last step that is complete.
func TestLastPullRate(t *testing.T) {
	series := api.Series{Step: 10, Points: []api.SeriesPoint{{Pulled: 7}, {Pulled: 500}, {Pulled: 1}}}
	if got := lastPullRate(series); got != 50 {
		t.Errorf("%v, want 50", got)
	}
	for _, s := range []api.Series{{}, {Step: 10, Points: []api.SeriesPoint{{Pulled: 1}}}, {Points: series.Points}} {
		if got := lastPullRate(s); got != 0 {
			t.Errorf("%+v: %v, want 0", s, got)
		}
	}
}

func TestNames(t *testing.T) {
	if got := firstNames([]string{"g", "f", "e", "d", "c", "b", "a"}); got != "a, b, c, d, e and 2 more" {
		t.Errorf("%q", got)
	}
	if got := countStates(map[string]int{"Offline": 1, "Active": 2}); got != "2 Active, 1 Offline" {
		t.Errorf("%q", got)
	}
}
