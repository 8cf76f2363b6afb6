package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
)

var program = runner.Program{
	Name: "bench-scan", Example: "dir-wall,dir-cpu", Children: children,
	New: func(r *runner.Run) runner.Benchmark { return &bench{Run: r} },
}

func main() { runner.Main(program) }

// part is a group of rows and the function that measures them. A new part goes into a separate file
// and into the list of parts.
type part struct {
	rows    func(rounds int) []row.Row
	measure func(context.Context, *bench) error
}

var parts = []part{directoryPart, formsPart, nextPart, matchPart, buildPart, feedPart, fullPart, programPart}

// limit limits the duration of a run, including the creation of the tree.
const limit = 90 * time.Minute

// bench is one run.
type bench struct {
	*runner.Run
	rounds  int
	scalibr string   // program to compare with
	shared  string   // directory with data/vuln
	scanner string   // the program; "" until it is built
	license []string // flags that select the license file
	real    string   // database of all advisories; "" until it is built
}

// Flags adds the number of rounds and what to compare with.
func (b *bench) Flags(flags *flag.FlagSet) {
	flags.IntVar(&b.rounds, "rounds", 5, "times that everything is measured")
	flags.StringVar(&b.scalibr, "scalibr", "", "program of osv-scalibr to compare with")
	flags.StringVar(&b.shared, "shared", "../shared", "directory with the advisories in data/vuln")
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
func (b *bench) Measure(ctx context.Context) error {
	ctx, cancel := runner.Limit(ctx, limit)
	defer cancel()
	for _, p := range parts {
		b.MeasureParts(ctx, runner.Part{
			Rows: row.Names(p.rows(b.rounds)),
			Do:   func(ctx context.Context) error { return p.measure(ctx, b) },
		})
	}
	return nil
}
