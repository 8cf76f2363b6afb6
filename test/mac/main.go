package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("mac", run) }

// options are the command line.
type options struct {
	only *regexp.Regexp // cases by their names
	json string
	keep bool
	dir  string // for the data of a run; "" = a file system that is made for the run
}

// limit bounds a run.
const limit = 30 * time.Minute

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("mac", flag.ContinueOnError)
	fs.SetOutput(out)
	only := fs.String("only", "", "only the cases whose name matches this regular expression")
	fs.StringVar(&o.json, "json", "", "file for the report in JSON")
	fs.BoolVar(&o.keep, "keep", false, "keep data and logs")
	fs.StringVar(&o.dir, "dir", "", "empty directory for data and logs (default: on XFS in an image file)")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, errors.New("usage: mac [-only REGEXP] [-json FILE] [-keep] [-dir DIRECTORY]")
	}
	if o.dir != "" {
		if o.dir, err = filepath.Abs(o.dir); err != nil {
			return o, err
		}
	}
	o.only, err = regexp.Compile(*only)
	return o, err
}

// run is one run.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	r := newReport(out, required(o.only))
	if len(r.required) == 0 {
		return false, fmt.Errorf("no case matches %q", o.only)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if o.dir == "" {
		return onVolume(ctx, o, args, out)
	}
	return o.runGroups(ctx, r)
}

// runGroups runs the selected cases and writes the report.
func (o options) runGroups(ctx context.Context, r *report) (ok bool, err error) {
	s, err := newStage(ctx, o.dir)
	if err != nil {
		return false, err
	}
	for _, g := range groups {
		if err := g.run(ctx, s, r, o.only); err != nil {
			return false, err
		}
	}
	r.close()
	if o.json != "" {
		err = r.write(o.json)
	}
	return r.ok(), err
}
