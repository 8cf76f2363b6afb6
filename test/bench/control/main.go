package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("bench-control", run) }

// options are the command line.
type options struct {
	only  map[string]bool // rows to measure
	json  string
	check bool
	keep  bool
	bare  string // address: be the bare handler there
	dir   string // of the bare handler's store
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("bench-control", flag.ContinueOnError)
	fs.SetOutput(out)
	only := fs.String("only", "", "rows to measure, such as burst-2000,list-1000 (default: all)")
	fs.StringVar(&o.json, "json", "", "file for the report in JSON")
	fs.BoolVar(&o.check, "check", false, "fail when a row misses its target")
	fs.BoolVar(&o.keep, "keep", false, "keep data and logs")
	fs.StringVar(&o.bare, "bare", "", "be the bare handler at this address; the benchmark starts it by itself")
	fs.StringVar(&o.dir, "dir", "", "directory of the bare handler's store")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 || (o.bare == "") != (o.dir == "") {
		return o, errors.New("usage: bench-control [-only ROWS] [-check] [-json FILE] [-keep]")
	}
	o.only, err = row.Only(rows, *only)
	return o, err
}

// limit bounds a run without the time that building takes.
const limit = 15 * time.Minute

// garbage is how much more memory than is live this client takes, in percent: it shares
// the cores with the server that it measures.
const garbage = 400

// bench is one run.
type bench struct {
	options
	*row.Report
	dir      string // of everything that the run writes
	programs rig.Programs
	out      io.Writer
}

// run measures and reports whether the run ended well.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	if o.bare != "" {
		err := serveBare(ctx, o.bare, o.dir)
		return err == nil, err
	}
	debug.SetGCPercent(garbage)
	dir, done, err := rig.WorkDir("bench", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	b := &bench{options: o, Report: row.NewReport(rows, o.only), dir: dir, out: out}
	err = b.measure(ctx)
	b.Judge()
	b.Print(out, "simulated nodes whose VMs boot in 0 ms")
	if o.json != "" {
		err = errors.Join(err, row.Write(o.json, b.Report))
	}
	return b.OK(row.Check(o.check)), err
}

// say prints one line of progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.out, "%6.1fs %s\n", time.Since(b.Began).Seconds(), fmt.Sprintf(format, args...))
}

// part measures some rows on a separate cloud.
type part struct {
	name  string
	nodes int // of the fleet that it needs; 0: none
	rows  []string
	do    func(context.Context, *stage) error
}

// parts returns what a run does, in its order.
func (b *bench) parts() []part {
	return []part{
		{"creates", 0, []string{rowCreate1, rowCreate8, rowCreate64}, b.creates},
		{"instances", fleet, []string{
			rowPlaced, rowStarted, rowLatency50, rowLatency99, rowBurst, rowGrow, rowGrowRatio, rowList1000,
			rowList10000, rowRunning,
		}, b.instances},
		{"idle", few, []string{rowFewMemory, rowFewCPU}, b.fewIdle},
		{"many", many, []string{rowManyMemory, rowManyCPU, rowManyWrites}, b.manyIdle},
		{"restart", 0, []string{rowRestart}, b.restart},
	}
}

// measure runs every part. Rows that could not be measured say why; the error is of
// what was left behind.
func (b *bench) measure(ctx context.Context) (err error) {
	if b.programs, err = rig.Build(ctx, b.dir); err != nil {
		for _, p := range b.parts() {
			b.Spoil(err, p.rows...)
		}
		return nil
	}
	b.say("built the programs")
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run took longer than %s", limit))
	defer cancel()
	for _, p := range b.parts() {
		if !b.Wants(p.rows...) {
			continue
		}
		if failed := b.play(ctx, p); failed != nil {
			b.spoilMissing(reason(ctx, failed), p.rows)
			b.say("failed: %v", failed)
		}
	}
	return nil
}

// play opens a stage, runs a part on it and closes it.
func (b *bench) play(ctx context.Context, p part) (err error) {
	s, err := openStage(ctx, b, p)
	if s != nil {
		defer func() { err = errors.Join(err, s.close()) }()
	}
	if err != nil {
		return err
	}
	return p.do(ctx, s)
}

// spoilMissing returns why rows have no value, of those that have not all their samples.
func (b *bench) spoilMissing(err error, names []string) {
	for _, r := range rows {
		for _, name := range names {
			if f := b.Figure(name); r.Name == name && !f.Skipped && len(f.Samples) < r.Need {
				b.Spoil(err, name)
			}
		}
	}
}

// reason returns why something failed: the end of the run rather than what came of it.
func reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("the run was ended: %w", cause)
	}
	return err
}
