package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("upgrade", run) }

// options are the command line.
type options struct {
	from string         // commit of the old programs
	only *regexp.Regexp // groups by their names
	bin  string         // directory that keeps the old sources and the programs; "": they are built for this run
	keep bool
}

// baseline is the commit before the names of this product changed.
const baseline = "6fd311c"

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("upgrade", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&o.from, "from", baseline, "commit of the old programs")
	only := fs.String("only", "", "run only the groups of cases whose name matches this regular expression")
	fs.StringVar(&o.bin, "bin", "", "directory for old sources and programs, which the next run with it uses again")
	fs.BoolVar(&o.keep, "keep", false, "keep data and logs")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, errors.New("usage: upgrade [-from COMMIT] [-only REGEXP] [-bin DIR] [-keep]")
	}
	if *only != "" {
		o.only, err = regexp.Compile(*only)
	}
	return o, err
}

// step is one case.
type step struct {
	name string
	play func(ctx context.Context) (evidence string, err error)
	// loose marks a case that no later one depends on.
	loose bool
}

// group is cases that are run in their order; a failed one that is not loose ends the group.
type group struct {
	name  string
	steps []step
	close func() error // nil: nothing to clean up
}

// errSkip is a case that cannot run on this machine.
var errSkip = errors.New("skipped")

// run is one run of the suite.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	began := time.Now()
	dir, done, err := rig.WorkDir("upgrade", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	b, err := buildAll(ctx, o.from, cmp.Or(o.bin, dir))
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "from %s to %s with its changes, built in %.0f s\n", b.old.commit, b.new.commit,
		time.Since(began).Seconds())
	r := &report{out: out}
	for _, g := range groups(b, dir) {
		if o.only == nil || o.only.MatchString(g.name) {
			r.play(ctx, g)
		}
	}
	fmt.Fprintf(out, "%.0f s\n", time.Since(began).Seconds())
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	return r.failed == 0 && r.passed > 0, nil
}

// groups returns all cases.
func groups(b *builds, dir string) []group {
	return []group{
		names(b, dir), commands(b), settings(b, dir), scanners(b, filepath.Join(dir, "scan")),
		upgrade(b, filepath.Join(dir, "up"), arrangement{name: "one process"}),
		upgrade(b, filepath.Join(dir, "split"), arrangement{name: "two processes", split: true, kill: true}),
		drillCases(b, filepath.Join(dir, "drill")),
	}
}

// report counts and prints what the cases found.
type report struct {
	out                     io.Writer
	passed, failed, skipped int
}

// play runs a group. Every case of it is reported.
func (r *report) play(ctx context.Context, g group) {
	var broken string
	for _, s := range g.steps {
		name := g.name + ": " + s.name
		if broken != "" {
			r.note(name, "", fmt.Errorf("not reached, as %q failed", broken))
			continue
		}
		evidence, err := s.play(ctx)
		r.note(name, evidence, err)
		if err != nil && !errors.Is(err, errSkip) && !s.loose {
			broken = s.name
		}
	}
	if g.close == nil {
		return
	}
	if err := g.close(); err != nil {
		r.note(g.name+": end", "", err)
	}
}

func (r *report) note(name, evidence string, err error) {
	switch {
	case errors.Is(err, errSkip):
		r.skipped++
		fmt.Fprintf(r.out, "skip %s: %v\n", name, err)
	case err != nil:
		r.failed++
		fmt.Fprintf(r.out, "FAIL %s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "\n     "))
	default:
		r.passed++
		fmt.Fprintf(r.out, "ok   %s: %s\n", name, evidence)
	}
}
