package runner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/rig"
)

// Program is a benchmark program.
type Program struct {
	Name    string // such as bench-control
	Example string // value of -only
	New     func(*Run) Benchmark

	// Children are what processes of this program do that the benchmark itself starts, by their first argument.
	Children map[string]Child
}

// Child is the work of a process that a benchmark starts.
type Child func(ctx context.Context, args []string, out io.Writer) error

// Benchmark is what differs between benchmarks. Its type embeds *Run.
type Benchmark interface {
	Flags(flags *flag.FlagSet)         // adds flags
	Rows() ([]row.Row, error)          // the table, or why the flags are invalid
	Measure(ctx context.Context) error // fills the report; an error spoils the rows without all samples
	Head() string                      // line above the rows of the report
	JSON() any                         // the report to write as JSON
}

// Run is the common part of a benchmark.
type Run struct {
	*row.Report
	Dir      string // of everything that the run writes
	Keep     bool   // the directory
	Out      io.Writer
	names    []string     // of all rows
	Programs rig.Programs // after Build

	only, json string
	check      bool
}

// Flags adds no flags.
func (r *Run) Flags(*flag.FlagSet) {}

// JSON returns the common report.
func (r *Run) JSON() any { return r.Report }

// Main runs a program and exits.
func Main(p Program) { rig.Main(p.Name, p.run) }

// Parse returns the benchmark for a command line, and its common part.
func (p Program) Parse(args []string, out io.Writer) (Benchmark, *Run, error) {
	r := &Run{Out: out}
	b := p.New(r)
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&r.only, "only", "", "rows to measure, such as "+p.Example+" (default: all)")
	flags.StringVar(&r.json, "json", "", "file for the report in JSON")
	flags.BoolVar(&r.check, "check", false, "fail when a row misses its target")
	flags.BoolVar(&r.Keep, "keep", false, "keep data and logs")
	b.Flags(flags)

	if err := flags.Parse(args); err != nil {
		return nil, nil, err
	}
	if flags.NArg() > 0 {
		return nil, nil, fmt.Errorf("unexpected argument %q; see %s -help", flags.Arg(0), p.Name)
	}
	rows, err := b.Rows()
	if err != nil {
		return nil, nil, err
	}
	only, err := row.Only(rows, r.only)
	if err != nil {
		return nil, nil, err
	}
	r.Report, r.names = row.NewReport(rows, only), row.Names(rows)
	return b, r, nil
}

// run measures and reports whether the run ended well.
func (p Program) run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	if len(args) > 0 {
		if child := p.Children[args[0]]; child != nil {
			err := child(ctx, args[1:], out)
			return err == nil, err
		}
	}

	b, r, err := p.Parse(args, out)
	if err != nil {
		return false, err
	}
	dir, done, err := rig.WorkDir(p.Name, r.Keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	r.Dir = dir

	if err = b.Measure(ctx); err != nil {
		r.SpoilMissing(cause(ctx, err), r.names...)
	}
	r.Evaluate()
	r.Print(out, b.Head())
	if r.json != "" {
		err = errors.Join(err, row.Write(r.json, b.JSON()))
	}
	return r.OK(row.Check(r.check)), err
}

// AllRows reports whether no selection of rows was given.
func (r *Run) AllRows() bool { return r.only == "" }

// Say prints one line of progress.
func (r *Run) Say(format string, args ...any) {
	fmt.Fprintf(r.Out, "%6.1fs %s\n", time.Since(r.Began).Seconds(), fmt.Sprintf(format, args...))
}

// Build builds the programs.
func (r *Run) Build(ctx context.Context) (err error) {
	if r.Programs, err = rig.Build(ctx, r.Dir); err == nil {
		r.Say("built the programs")
	}
	return err
}

// Limit limits the duration of a run; the error after it names the limit.
func Limit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run took longer than %s", limit))
}

// Part measures some rows.
type Part struct {
	Rows    []string
	Do      func(context.Context) error
	Partial bool // if it fails, its rows that have all their samples count
}

// MeasureParts measures the parts with requested rows. Rows that a part could not measure record the reason.
func (r *Run) MeasureParts(ctx context.Context, parts ...Part) {
	for _, p := range parts {
		if !r.Wants(p.Rows...) {
			continue
		}
		err := p.Do(ctx)
		if err == nil {
			continue
		}
		r.Say("failed: %v", err)
		if p.Partial {
			r.SpoilMissing(cause(ctx, err), p.Rows...)
		} else {
			r.Fail(ctx, err, p.Rows...)
		}
	}
}

// Fail records why rows are not measured.
func (r *Run) Fail(ctx context.Context, err error, rows ...string) { r.Spoil(cause(ctx, err), rows...) }

// cause returns why something failed: the end of the run rather than its consequence.
func cause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("the run was ended: %w", cause)
	}
	return err
}
