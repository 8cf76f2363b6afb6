package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
)

var program = runner.Program{
	Name: "bench-host", Example: "idle-ticks,storm",
	New: func(r *runner.Run) runner.Benchmark { return &bench{Run: r} },
}

func main() { runner.Main(program) }

// part is some rows and what measures them. A new part goes into a separate file and into the list
// of parts.
type part struct {
	rows    func(rounds int) []row.Row
	measure func(context.Context, *bench) error
}

// Those that use the same service come one after the other: rest is first, since it requires that
// nothing has happened before.
var parts = []part{programPart, fullPart, restPart, foreignPart, arrivalPart, stormPart}

// limit bounds a run, the making of the tree too.
const limit = 60 * time.Minute

// bench is one run.
type bench struct {
	*runner.Run
	rounds    int      // of the full scan
	shared    string   // directory with data/vuln
	growth    bool     // also what has no target
	figures   *figures // of the stage, once it is set up
	grown     *figures // of the large catalog
	programs  programs
	databases databases
	stage     *stage // nil until it is set up
}

// report is the report in JSON.
type report struct {
	*row.Report
	Stage  *figures `json:"stage,omitempty"`  // of the service that the rows are about
	Growth *figures `json:"growth,omitempty"` // the same with many packages more: no row has a target for it
}

// JSON returns the report with the figures of the services.
func (b *bench) JSON() any { return report{b.Report, b.figures, b.grown} }

// Flags adds the number of rounds, the advisories and the measurements without a target.
func (b *bench) Flags(flags *flag.FlagSet) {
	flags.IntVar(&b.rounds, "rounds", 5, "pairs of full scans")
	flags.StringVar(&b.shared, "shared", "../shared", "directory with the advisories in data/vuln")
	flags.BoolVar(&b.growth, "growth", false, "with -only: also the large catalog, which has no row")
}

// Rows returns the rows of all parts.
func (b *bench) Rows() ([]row.Row, error) {
	if b.rounds < 1 {
		return nil, fmt.Errorf("invalid -rounds %d: want 1 or more", b.rounds)
	}
	var out []row.Row
	for _, p := range parts {
		out = append(out, p.rows(b.rounds)...)
	}
	return out, nil
}

// Head describes the run.
func (b *bench) Head() string { return fmt.Sprintf("%d rounds", b.rounds) }

// Measure measures every part.
func (b *bench) Measure(ctx context.Context) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("only root watches the whole host: run it as root")
	}
	ctx, cancel := runner.Limit(ctx, limit)
	defer cancel()
	defer func() { err = errors.Join(err, b.stage.end()) }()
	for _, p := range parts {
		b.MeasureParts(ctx, runner.Part{
			Rows: row.Names(p.rows(b.rounds)),
			Do:   func(ctx context.Context) error { return p.measure(ctx, b) },
		})
	}
	if b.growth || b.AllRows() {
		if err := b.grow(ctx); err != nil {
			return fmt.Errorf("the large catalog: %w", err)
		}
	}
	return nil
}
