package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("bench-host", run) }

// part is some rows and what measures them. A new part goes into a separate file and into the list
// of parts.
type part struct {
	rows    func(rounds int) []row.Row
	measure func(context.Context, *bench) error
}

// Those that use the same service come one after the other: rest is first, since it requires that
// nothing has happened before.
var parts = []part{programPart, fullPart, restPart, foreignPart, arrivalPart, stormPart}

// rows lists those of all parts.
func rows(rounds int) []row.Row {
	var out []row.Row
	for _, p := range parts {
		out = append(out, p.rows(rounds)...)
	}
	return out
}

// options are the command line.
type options struct {
	only   map[string]bool // rows to measure
	rounds int             // of the full scan
	shared string          // directory with data/vuln
	json   string
	check  bool
	keep   bool
	growth bool // also what has no target
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("bench-host", flag.ContinueOnError)
	fs.SetOutput(out)
	only := fs.String("only", "", "rows to measure, such as idle-ticks,storm (default: all)")
	fs.IntVar(&o.rounds, "rounds", 5, "pairs of full scans")
	fs.StringVar(&o.shared, "shared", "../shared", "folder that holds the advisories in data/vuln")
	fs.StringVar(&o.json, "json", "", "file for the report in JSON")
	fs.BoolVar(&o.check, "check", false, "fail when a row misses its target")
	fs.BoolVar(&o.keep, "keep", false, "keep what was built")
	fs.BoolVar(&o.growth, "growth", false, "with -only: also the large catalogue, which has no row")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 || o.rounds < 1 {
		return o,
			errors.New(
				"usage: bench-host [-shared FOLDER] [-only ROWS] [-rounds N] [-check] [-json FILE] [-keep] [-growth]")
	}
	o.growth = o.growth || *only == ""
	o.only, err = row.Only(rows(o.rounds), *only)
	return o, err
}

// limit bounds a run, the making of the tree too.
const limit = 60 * time.Minute

// bench is one run.
type bench struct {
	options
	*row.Report
	Stage  *figures `json:"stage,omitempty"`  // of the service that the rows are about
	Growth *figures `json:"growth,omitempty"` // the same with many packages more: no row has a target for it

	dir       string // of everything that the run writes
	programs  programs
	databases databases
	stage     *stage // nil until it stands
	out       io.Writer
}

// run measures and reports whether the run ended well.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	if os.Geteuid() != 0 {
		return false, errors.New("only root watches the whole host: run it as root")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run took longer than %s", limit))
	defer cancel()
	dir, done, err := rig.WorkDir("bench", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	b := &bench{options: o, Report: row.NewReport(rows(o.rounds), o.only), dir: dir, out: out}
	defer func() { err = errors.Join(err, b.stage.end()) }()
	for _, p := range parts {
		b.part(ctx, p)
	}
	if b.growth {
		if err := b.grow(ctx); err != nil {
			return false, fmt.Errorf("the large catalogue: %w", err)
		}
	}
	b.Judge()
	b.Print(out, fmt.Sprintf("%d rounds", o.rounds))
	if o.json != "" {
		err = row.Write(o.json, b)
	}
	return b.OK(row.Check(o.check)), err
}

// part measures the requested rows of a part. Those that could not be measured record the reason.
func (b *bench) part(ctx context.Context, p part) {
	var names []string
	for _, r := range p.rows(b.rounds) {
		names = append(names, r.Name)
	}
	if !b.Wants(names...) {
		return
	}
	if err := p.measure(ctx, b); err != nil {
		b.say("failed: %v", err)
		b.Spoil(err, names...)
	}
}

// say prints one line of progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.out, "%6.1fs %s\n", time.Since(b.Began).Seconds(), fmt.Sprintf(format, args...))
}
