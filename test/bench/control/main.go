package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
)

var program = runner.Program{
	Name: "bench-control", Example: "burst-2000,list-1000",
	New:      func(r *runner.Run) runner.Benchmark { return &bench{r} },
	Children: map[string]runner.Child{childBare: bareChild},
}

func main() { runner.Main(program) }

// limit bounds a run without the time that building takes.
const limit = 15 * time.Minute

// garbage is how much more memory than is live this client takes, in percent: it shares
// the cores with the server that it measures.
const garbage = 400

// bench is one run.
type bench struct{ *runner.Run }

// Rows returns the table.
func (b *bench) Rows() ([]row.Row, error) { return rows, nil }

// Head describes the nodes.
func (b *bench) Head() string { return "simulated nodes whose VMs boot in 0 ms" }

// childBare is the process of the bare handler.
const childBare = "bare"

// bareChild serves the bare handler at an address, with its store in a directory.
func bareChild(ctx context.Context, args []string, _ io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("%s: want an address and a directory", childBare)
	}
	return serveBare(ctx, args[0], args[1])
}

// Measure measures every part.
func (b *bench) Measure(ctx context.Context) error {
	debug.SetGCPercent(garbage)
	if err := b.Build(ctx); err != nil {
		return err
	}
	ctx, cancel := runner.Limit(ctx, limit)
	defer cancel()
	b.MeasureParts(ctx, b.parts()...)
	return nil
}

// parts returns what a run does, in its order.
func (b *bench) parts() []runner.Part {
	return []runner.Part{
		b.part("creates", 0, b.creates, rowCreate1, rowCreate8, rowCreate64),
		b.part("instances", fleet, b.instances, rowPlaced, rowStarted, rowLatency50, rowLatency99, rowBurst, rowGrow,
			rowGrowRatio, rowList1000, rowList10000, rowRunning),
		b.part("running", fleet, b.runningMemory, rowRunningMB),
		b.part("idle", few, b.fewIdle, rowFewMemory, rowFewCPU),
		b.part("many", many, b.manyIdle, rowManyMemory, rowManyCPU, rowManyWrites),
		b.part("restart", 0, b.restart, rowRestart),
	}
}

// part measures some rows on a separate cloud with a fleet of nodes; 0: none.
func (b *bench) part(name string, nodes int, do func(context.Context, *stage) error, rows ...string) runner.Part {
	return runner.Part{Rows: rows, Partial: true, Do: func(ctx context.Context) (err error) {
		s, err := openStage(ctx, b, name, nodes)
		if s != nil {
			defer func() { err = errors.Join(err, s.close()) }()
		}
		if err != nil {
			return err
		}
		return do(ctx, s)
	}}
}
