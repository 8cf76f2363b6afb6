package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("images", run) }

// options are the command line.
type options struct {
	only   *regexp.Regexp // rows by their names
	json   string
	keep   bool
	shared string
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("images", flag.ContinueOnError)
	fs.SetOutput(out)
	only := fs.String("only", "", "only the rows whose name matches this regular expression")
	fs.StringVar(&o.json, "json", "", "file for the rows in JSON")
	fs.BoolVar(&o.keep, "keep", false, "keep the images")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, errors.New("usage: images [-only REGEXP] [-json FILE] [-keep]")
	}
	o.shared = cmp.Or(os.Getenv("SHARED"), "../shared")
	o.only, err = regexp.Compile(*only)
	return o, err
}

// row is a line of the report.
type row struct {
	Name, Form  string
	Equal, All  int
	Differences []string `json:",omitempty"`
	Seconds     float64
}

func (r row) passed() bool { return len(r.Differences) == 0 && r.All > 0 && r.Equal == r.All }

// most is how many differences of a row are printed.
const most = 5

func (r row) print(out io.Writer) {
	verdict := "ok"
	if !r.passed() {
		verdict = "FAILED"
	}
	counts := fmt.Sprintf("%s %d/%d", r.Name, r.Equal, r.All)
	fmt.Fprintf(out, "%-36s %-17s %-6s %5.1f s\n", counts, r.Form, verdict, r.Seconds)
	for i, d := range r.Differences {
		if i == most {
			fmt.Fprintf(out, "    and %d more\n", len(r.Differences)-most)
			return
		}
		fmt.Fprintf(out, "    %s\n", d)
	}
}

// stage is the working directory of a run.
type stage struct {
	options
	dir  string
	out  io.Writer
	rows []row
}

// try runs a row, unless it was not selected.
func (s *stage) try(name, form string, do func(r *row) error) {
	if !s.only.MatchString(name + " " + form) {
		return
	}
	began := time.Now()
	r := row{Name: name, Form: form}
	if err := do(&r); err != nil {
		r.Differences = append(r.Differences, err.Error())
	}
	r.Seconds = time.Since(began).Seconds()
	r.print(s.out)
	s.rows = append(s.rows, r)
}

// run executes one run.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	dir, done, err := rig.WorkDir("images", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	s := &stage{options: o, dir: dir, out: out}
	for _, sub := range subjects {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		s.subject(ctx, sub)
	}
	s.reports(ctx)
	if o.json != "" {
		b, err := json.MarshalIndent(s.rows, "", " ")
		if err == nil {
			err = os.WriteFile(o.json, b, 0o644)
		}
		if err != nil {
			return false, err
		}
	}
	passed := 0
	for _, r := range s.rows {
		if r.passed() {
			passed++
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed, 0 skipped\n", passed, len(s.rows)-passed)
	return passed == len(s.rows) && passed > 0, nil
}

// subject tests a subject in all its formats.
func (s *stage) subject(ctx context.Context, sub subject) {
	dir := filepath.Join(s.dir, sub.name)
	var d *made
	prepare := func() (err error) {
		if d == nil {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			d, err = sub.make(ctx, s, dir)
		}
		return err
	}
	for _, f := range sub.forms {
		s.try(sub.name, f.name, func(r *row) error {
			if err := prepare(); err != nil {
				return err
			}
			return s.form(ctx, f, d, r)
		})
	}
	for _, w := range sub.witnesses {
		s.try(sub.name, w.name, func(r *row) error {
			if err := prepare(); err != nil {
				return err
			}
			return w.agree(ctx, d, r)
		})
	}
	if !s.keep {
		_ = os.RemoveAll(dir) // the rest is removed with the stage
	}
}
