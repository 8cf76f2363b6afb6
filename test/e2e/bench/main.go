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

func main() { rig.Main("bench-portal", run) }

// options are the command line.
type options struct {
	only    map[string]bool // rows to measure
	seconds int             // that the tab is watched
	json    string
	check   bool
	keep    bool
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("bench-portal", flag.ContinueOnError)
	fs.SetOutput(out)
	only := fs.String("only", "", "rows to measure, such as first-instances,tab-heap (default: all)")
	fs.IntVar(&o.seconds, "seconds", wholeWatch,
		"how long the tab is watched; a shorter time tries the benchmark out, and leaves its rows unmeasured")
	fs.StringVar(&o.json, "json", "", "file for the report in JSON")
	fs.BoolVar(&o.check, "check", false, "fail when a row misses its target")
	fs.BoolVar(&o.keep, "keep", false, "keep data and logs")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 || o.seconds < 1 || o.seconds > 86400 {
		return o, errors.New("usage: bench-portal [-only ROWS] [-seconds N] [-check] [-json FILE] [-keep]")
	}
	o.only, err = row.Only(rows, *only)
	return o, err
}

// garbage is how much more memory than is live this client takes, in percent: it shares
// the cores with the server that it measures.
const garbage = 400

// bench is one run.
type bench struct {
	options
	*row.Report
	dir string // of everything that the run writes
	out io.Writer
}

// run measures and reports whether the run ended well.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	debug.SetGCPercent(garbage)
	dir, done, err := rig.WorkDir("bench-portal", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	b := &bench{options: o, Report: row.NewReport(rows, o.only), dir: dir, out: out}
	err = b.measure(ctx)
	b.Judge()
	b.Print(out, fmt.Sprintf("%d running instances, %d simulated nodes, %d changes a second; callers log in", instances,
		nodes, changes))
	if o.json != "" {
		err = errors.Join(err, row.Write(o.json, b.Report))
	}
	return b.OK(row.Check(o.check)), err
}

// say prints one line of progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.out, "%6.1fs %s\n", time.Since(b.Began).Seconds(), fmt.Sprintf(format, args...))
}

// part measures some rows.
type part struct {
	name string
	rows []string
	do   func(context.Context, *stage) error
}

// parts returns what a run does, in its order.
func (b *bench) parts() []part {
	var firsts, refreshes, paints []string
	for _, s := range sights {
		firsts, refreshes, paints = append(firsts, s.first()), append(refreshes, s.refresh()), append(paints, s.paint())
	}
	return []part{
		{"first pages", firsts, b.firsts},
		{"refreshes", refreshes, b.refreshes},
		{"paints", paints, b.paints},
		{"tabs", []string{rowTabs, rowTabsOne}, b.tabs},
		{"the tab", []string{rowHeap, rowNodes, rowListeners}, b.tab},
	}
}

// measure runs every part on one cloud. Rows that could not be measured say why; the error is of
// what was left behind.
func (b *bench) measure(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit+time.Duration(b.seconds)*time.Second,
		errors.New("the run took too long"))
	defer cancel()
	s, err := openStage(ctx, b)
	if s != nil {
		defer func() { err = errors.Join(err, s.close()) }()
	}
	for _, p := range b.parts() {
		if err == nil && b.Wants(p.rows...) {
			if failed := s.steady(ctx, p.do); failed != nil {
				b.spoilMissing(failed, p.rows)
				b.say("%s: %v", p.name, failed)
			}
		}
		if err != nil {
			b.spoilMissing(err, p.rows)
		}
	}
	return nil
}

// spoilMissing returns why rows have no value.
func (b *bench) spoilMissing(err error, names []string) {
	for _, name := range names {
		if !b.Figure(name).Skipped {
			b.Spoil(err, name)
		}
	}
}
