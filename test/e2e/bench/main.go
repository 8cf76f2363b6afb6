package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
)

var program = runner.Program{
	Name: "bench-portal", Example: "first-instances,tab-heap",
	New: func(r *runner.Run) runner.Benchmark { return &bench{Run: r} },
}

func main() { runner.Main(program) }

// garbage is how much more memory than is live this client takes, in percent: it shares
// the cores with the server that it measures.
const garbage = 400

// bench is one run.
type bench struct {
	*runner.Run
	seconds int // that the tab is watched
}

// Flags adds how long the tab is watched.
func (b *bench) Flags(flags *flag.FlagSet) {
	flags.IntVar(&b.seconds, "seconds", wholeWatch,
		"how long the tab is watched; a shorter time tries the benchmark out, and leaves its rows unmeasured")
}

// Rows returns the table.
func (b *bench) Rows() ([]row.Row, error) {
	if b.seconds < 1 || b.seconds > 86400 {
		return nil, fmt.Errorf("invalid -seconds %d: want 1 to 86400", b.seconds)
	}
	return rows, nil
}

// Head describes the cloud.
func (b *bench) Head() string {
	return fmt.Sprintf("%d running instances, %d simulated nodes, %d changes a second; callers log in", instances,
		nodes, changes)
}

// Measure measures every part on one cloud. The error is of what was left behind.
func (b *bench) Measure(ctx context.Context) (err error) {
	debug.SetGCPercent(garbage)
	ctx, cancel := runner.Limit(ctx, limit+time.Duration(b.seconds)*time.Second)
	defer cancel()
	s, err := openStage(ctx, b)
	if s != nil {
		defer func() { err = errors.Join(err, s.close()) }()
	}
	if err != nil {
		return err
	}
	b.MeasureParts(ctx, b.parts(s)...)
	return nil
}

// parts returns what a run does, in its order.
func (b *bench) parts(s *stage) []runner.Part {
	var firsts, refreshes, paints []string
	for _, s := range sights {
		firsts, refreshes = append(firsts, s.first()), append(refreshes, s.refresh())
		paints = append(paints, s.paint(), s.ratio())
	}
	part := func(do func(context.Context, *stage) error, rows ...string) runner.Part {
		return runner.Part{Rows: rows, Do: func(ctx context.Context) error { return s.steady(ctx, do) }}
	}
	return []runner.Part{
		part(b.firsts, firsts...),
		part(b.refreshes, refreshes...),
		part(b.paints, paints...),
		part(b.wire, rowVisit, rowWire),
		part(b.tabs, rowTabs, rowTabsOne),
		part(b.tab, rowHeap, rowNodes, rowListeners),
		part(b.search, rowSearch),
	}
}
