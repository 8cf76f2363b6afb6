package main

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

func main() { rig.Main("bench-scan", run) }

// part is a group of rows and the function that measures them. A new part goes into a separate file
// and into the list of parts.
type part struct {
	rows    func(rounds int) []row.Row
	measure func(context.Context, *bench) error
}

var parts = []part{directoryPart, formsPart, matchPart, buildPart, feedPart, programPart}

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
	only    map[string]bool // rows to measure
	rounds  int
	scalibr string // program to compare with
	shared  string // directory with data/vuln
	json    string
	check   bool
	keep    bool
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("bench-scan", flag.ContinueOnError)
	fs.SetOutput(out)
	only := fs.String("only", "", "rows to measure, such as dir-wall,dir-cpu (default: all)")
	fs.IntVar(&o.rounds, "rounds", 5, "times that everything is measured")
	fs.StringVar(&o.scalibr, "scalibr", "", "program of osv-scalibr to measure beside ours")
	fs.StringVar(&o.shared, "shared", "../shared", "folder that holds the advisories in data/vuln")
	fs.StringVar(&o.json, "json", "", "file for the report in JSON")
	fs.BoolVar(&o.check, "check", false, "fail when a row misses its target")
	fs.BoolVar(&o.keep, "keep", false, "keep what was built")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 || o.rounds < 1 {
		return o,
			errors.New(
				"usage: bench-scan -scalibr FILE [-shared FOLDER] [-only ROWS] [-rounds N] [-check] [-json FILE] " +
					"[-keep]")
	}
	o.only, err = row.Only(rows(o.rounds), *only)
	return o, err
}

// limit limits the duration of a run, including the creation of the tree.
const limit = 90 * time.Minute

// bench is one run.
type bench struct {
	options
	*row.Report
	dir     string   // of all files of the run except the disks
	scanner string   // the program; "" until it is built
	licence []string // flags that select the license file
	real    string   // database of all advisories; "" until it is built
	out     io.Writer
}

// run measures and reports whether the run succeeded.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	if done, err := serve(ctx, args); done {
		return err == nil, err
	}
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run took longer than %s", limit))
	defer cancel()
	dir, done, err := rig.WorkDir("bench", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	b := &bench{options: o, Report: row.NewReport(rows(o.rounds), o.only), dir: dir, out: out}
	for _, p := range parts {
		b.part(ctx, p)
	}
	b.Judge()
	b.Print(out, fmt.Sprintf("%d rounds", o.rounds))
	if o.json != "" {
		err = errors.Join(err, row.Write(o.json, b.Report))
	}
	return b.OK(row.Check(o.check)), err
}

// part measures the selected rows of a part. A failure is recorded in them.
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
