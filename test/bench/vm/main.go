package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
)

var program = runner.Program{Name: "bench-vm", Example: "resume,idle", New: newBench}

func main() { runner.Main(program) }

func newBench(r *runner.Run) runner.Benchmark { return &bench{Run: r, starts: []interval{}} }

// bench is one run.
type bench struct {
	*runner.Run
	pairs      int
	guest      string // disk of the demo guest
	hypervisor hypervisor
	starts     []interval // of the pairs, in their order
}

// Flags adds the number of pairs.
func (b *bench) Flags(flags *flag.FlagSet) {
	flags.IntVar(&b.pairs, "pairs", minPairs,
		"pairs of a cold and a suspended start; fewer than 5 measure nothing that counts")
}

// Rows returns the table.
func (b *bench) Rows() ([]row.Row, error) {
	if b.pairs < 1 || b.pairs > maxPairs {
		return nil, fmt.Errorf("invalid -pairs %d: want 1 to %d", b.pairs, maxPairs)
	}
	return rows, nil
}

// maxPairs keeps a run below an hour.
const maxPairs = 100

// limit bounds a run without the time that building takes.
func (b *bench) limit() time.Duration {
	return 3*time.Minute + 30*time.Second + time.Duration(b.pairs)*45*time.Second
}

// Measure measures every part on one cloud. The error is of what was left behind.
func (b *bench) Measure(ctx context.Context) (err error) {
	if err := b.build(ctx); err != nil {
		return err
	}
	ctx, cancel := runner.Limit(ctx, b.limit())
	defer cancel()
	s, err := openStage(ctx, b)
	if s != nil {
		defer func() { err = errors.Join(err, s.close(ctx)) }()
	}
	if err != nil {
		return err
	}

	part := func(do func(context.Context, *stage) error, rows ...string) runner.Part {
		return runner.Part{Rows: rows, Do: func(ctx context.Context) error { return do(ctx, s) }}
	}
	b.MeasureParts(ctx,
		part(b.warm, rowOverhead, rowResume, rowPause, rowIdle),
		part(b.suspend, rowResume, rowIdle),
		part(b.pairUp, rowOverhead, rowResume, rowPause),
		part(b.idle, rowIdle),
	)
	return nil
}

// build builds the programs and the guest.
func (b *bench) build(ctx context.Context) (err error) {
	if err := b.Build(ctx); err != nil {
		return err
	}
	if b.guest, err = b.Programs.Guest(ctx, b.Dir); err == nil {
		b.Say("built the guest")
	}
	return err
}
