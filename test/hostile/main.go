package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("hostile", run) }

// options are the command line.
type options struct {
	only    *regexp.Regexp // attacks by their names; the others count as not asked for
	minutes float64        // of the mixed load
	among   *regexp.Regexp // attackers of the mixed load by their names: to find which of them costs others what
	json    string
	keep    bool
}

const usage = "usage: hostile [-only REGEXP] [-minutes 15] [-attackers REGEXP] [-json FILE] [-keep]"

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("hostile", flag.ContinueOnError)
	fs.SetOutput(out)
	only := fs.String("only", "", "only the attacks whose name matches this regular expression")
	fs.Float64Var(&o.minutes, "minutes", 15, "minutes of the mixed load")
	among := fs.String("attackers", "",
		"only the attackers of the mixed load whose name matches this regular expression")
	fs.StringVar(&o.json, "json", "", "file for the report in JSON")
	fs.BoolVar(&o.keep, "keep", false, "keep data and logs")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 || o.minutes <= 0 || o.minutes > 600 {
		return o, errors.New(usage + "; minutes are more than 0 and at most 600")
	}
	if o.among, err = regexp.Compile(*among); err != nil {
		return o, err
	}
	o.only, err = regexp.Compile(*only)
	return o, err
}

// run is one run.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	dir, done, err := rig.WorkDir("hostile", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	programs, err := rig.Build(ctx, dir)
	if err != nil {
		return false, err
	}

	began := time.Now()
	r := &report{out: out}
	x := &runner{options: o, report: r, dir: dir, programs: programs}
	for _, f := range families {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		x.family(ctx, f)
	}
	if o.only.MatchString(mixedName) {
		x.mixedLoad(ctx)
	}
	r.Seconds = time.Since(began).Seconds()
	r.close()
	if o.json != "" {
		if err := r.write(o.json); err != nil {
			return false, err
		}
	}
	return r.well(), ctx.Err()
}

// runner runs the attacks.
type runner struct {
	options
	*report
	dir      string
	programs rig.Programs
}

// family runs the attacks of a family that were asked for, on services that they share.
func (x *runner) family(ctx context.Context, f family) {
	var asked []attack
	for _, a := range f.attacks {
		if x.only.MatchString(f.name + ": " + a.name) {
			asked = append(asked, a)
		}
	}
	if len(asked) == 0 {
		return
	}
	s := &site{arrangement: f.site, dir: fmt.Sprintf("%s/%d", x.dir, len(x.Rows)), programs: x.programs}
	err := s.open(ctx)
	for _, a := range asked {
		if err != nil {
			x.add(row{Name: f.name + ": " + a.name, Fault: "the services do not start: " + err.Error()})
			continue
		}
		x.add(s.attack(ctx, f.name, a))
	}
	if err := s.close(); err != nil {
		x.add(row{Name: f.name + ": the end", Fault: err.Error()})
	}
}
