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

func main() { rig.Main("bench", run) }

// options are the command line.
type options struct {
	pairs int
	only  map[string]bool // rows to measure
	json  string
	check bool
	keep  bool
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.IntVar(&o.pairs, "pairs", minPairs,
		"pairs of a cold and a suspended start; fewer than 5 measure nothing that counts")
	only := fs.String("only", "", "rows to measure, such as resume,idle (default: all)")
	fs.StringVar(&o.json, "json", "", "file for the report in JSON")
	fs.BoolVar(&o.check, "check", false, "fail when a row misses its target")
	fs.BoolVar(&o.keep, "keep", false, "keep data and logs")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.pairs < 1 || o.pairs > maxPairs || fs.NArg() > 0 {
		return o, fmt.Errorf("usage: bench [-pairs 1-%d] [-only ROWS] [-check] [-json FILE] [-keep]", maxPairs)
	}
	o.only, err = row.Only(rows, *only)
	return o, err
}

// maxPairs keeps a run below an hour.
const maxPairs = 100

// limit bounds a run without the time that building takes.
func (o options) limit() time.Duration {
	return 3*time.Minute + 30*time.Second + time.Duration(o.pairs)*45*time.Second
}

// run measures and reports whether the run ended well.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	dir, done, err := rig.WorkDir("bench", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	b := &bench{options: o, report: newReport(o), dir: dir, out: out}
	err = b.measure(ctx)
	b.Judge()
	b.print(out)
	if o.json != "" {
		err = errors.Join(err, row.Write(o.json, b.report))
	}
	return b.OK(row.Check(o.check)), err
}

// build builds the programs and the guest.
func (b *bench) build(ctx context.Context) (err error) {
	began := time.Now()
	if b.programs, err = rig.Build(ctx, b.dir); err != nil {
		return err
	}
	if b.guest, err = b.programs.Guest(ctx, b.dir); err != nil {
		return err
	}
	b.say("built the programs and the guest in %s", time.Since(began).Round(time.Second))
	return nil
}
