package main

import (
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

func main() { rig.Main("authmatrix", run) }

// options are the command line.
type options struct {
	only *regexp.Regexp // arrangements by their names
	json string
	keep bool
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("authmatrix", flag.ContinueOnError)
	fs.SetOutput(out)
	only := fs.String("only", "", "only the arrangements whose name matches this regular expression")
	fs.StringVar(&o.json, "json", "", "file for the report in JSON")
	fs.BoolVar(&o.keep, "keep", false, "keep data and logs")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, errors.New("usage: authmatrix [-only REGEXP] [-json FILE] [-keep]")
	}
	o.only, err = regexp.Compile(*only)
	return o, err
}

// report is what a run found.
type report struct {
	Passed, Failed, Skipped int
	Arrangements            []tally
	Cells, Mismatches       int
	Notes                   []string
	Failures                []string
	Seconds                 float64
}

// tally is the matrix of one arrangement at one address.
type tally struct {
	Name                       string
	Rows, Columns              int
	Planned, Tried, Mismatches int
}

// fail notes a failure.
func (r *report) fail(format string, args ...any) {
	r.Failed++
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

// note takes the outcome of a case.
func (r *report) note(name string, err error) {
	if err != nil {
		r.fail("%s: %v", name, err)
		return
	}
	r.Passed++
}

// run is one run.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	began, r := time.Now(), &report{}
	rows, err := allRows()
	if err != nil {
		return false, err
	}
	dir, done, err := rig.WorkDir("authmatrix", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	programs, err := rig.Build(ctx, dir)
	if err != nil {
		return false, err
	}
	secrets := &rig.Secrets{}
	for i, a := range arrangements {
		if o.only.MatchString(a.name) {
			r.arrange(ctx, a, filepath.Join(dir, fmt.Sprint(i)), programs, secrets, rows)
		}
	}
	for i, tier := range tiers {
		if o.only.MatchString(tier.name) {
			r.note(tier.name, tier.play(ctx, filepath.Join(dir, fmt.Sprint("tier", i)), programs, secrets))
		}
	}
	r.search(secrets, dir)
	r.Seconds = time.Since(began).Seconds()
	r.print(out, rows)
	if o.json != "" {
		if err := r.write(o.json); err != nil {
			return false, err
		}
	}
	return r.Failed == 0 && r.Passed > 0, ctx.Err()
}

// arrange runs one arrangement.
func (r *report) arrange(ctx context.Context, a arrangement, dir string, programs rig.Programs, secrets *rig.Secrets, rows []row) {
	stand := rig.NewStand(ctx)
	defer stand.Close()
	s := &site{
		name: a.name, dir: dir, split: a.split, sides: a.sides, settings: a.settings, tls: a.tls, secrets: secrets, programs: programs, stand: stand,
	}
	defer func() { r.note(a.name+": the end", s.close()) }()
	err := s.open(ctx)
	if err == nil && a.ready != nil {
		err = a.ready(ctx, s)
	}
	if err != nil {
		r.fail("%s: %v\n%s", a.name, err, s.tails())
		return
	}
	matrix := func(where string, columns []column, include func(row) bool, address func(row) string, expect func(row, caller) verdict) {
		var some []row
		for _, one := range rows {
			if include(one) {
				some = append(some, one)
			}
		}
		r.matrix(ctx, s, a.name+where, some, columns, address, expect)
	}
	matrix("", a.columns, func(row) bool { return true }, func(one row) string { return s.addresses[one.service] }, s.expect)
	if a.local != nil {
		matrix(", the local port of the registry", a.local, func(one row) bool { return one.service == registry && one.when == always },
			func(row) string { return s.local }, s.expectLocally)
	}
	if a.queue != nil {
		matrix(", the interface for nodes", a.queue, func(one row) bool { return one.service == controller },
			func(row) string { return s.queue }, s.expectOfNodes)
	}
	for _, c := range a.cases {
		said, err := c.do(ctx, s)
		if said != "" {
			r.Notes = append(r.Notes, a.name+": "+c.name+": "+said)
		}
		r.note(a.name+": "+c.name, err)
	}
	if err := s.metrics(ctx); err != nil {
		r.fail("%s: %v", a.name, err)
	}
}

// expectLocally is what the registry's port for programs of its machine answers.
func (s *site) expectLocally(r row, c caller) verdict { return s.expect(r, c) }

// expectOfNodes is what the interface for nodes answers: it has the node link, the packages and
// the two probes alone.
func (s *site) expectOfNodes(r row, c caller) verdict {
	switch r.needs {
	case nodeOnly, nodeOrKnown, joining:
		return s.expect(r, c)
	}
	if r.path == "/livez" || r.path == "/readyz" {
		if r.method == "GET" {
			return reached
		}
	}
	return closed
}

// matrix tries every cell of rows and columns.
func (r *report) matrix(ctx context.Context, s *site, name string, rows []row, columns []column, address func(row) string, expect func(row, caller) verdict) {
	t := tally{Name: name, Rows: len(rows), Columns: len(columns)}
	for _, col := range columns {
		for _, one := range rows {
			if col.only != "" && col.only != one.service {
				continue
			}
			t.Planned++
			one = s.onSite(one)
			c, err := col.of(ctx, s, one)
			if err != nil {
				r.fail("%s: %s as %s: %v", name, one.pattern, col.name, err)
				continue
			}
			t.Tried++
			if fault := s.ask(ctx, address(one), one, c, expect(one, c)); fault != "" {
				t.Mismatches++
				r.fail("%s: %s: %s as %s: %s", name, one.service, one.pattern, col.name, fault)
				continue
			}
			r.Passed++
		}
	}
	if t.Tried != t.Planned {
		r.fail("%s: %d of %d cells were tried", name, t.Tried, t.Planned)
	}
	r.Arrangements = append(r.Arrangements, t)
	r.Cells, r.Mismatches = r.Cells+t.Tried, r.Mismatches+t.Mismatches
}

// search looks for secrets in every log.
func (r *report) search(secrets *rig.Secrets, dir string) {
	found, files, err := secrets.Search(dir)
	if err != nil || files == 0 {
		r.fail("search of the logs: %d files, %v", files, err)
		return
	}
	for _, line := range found {
		r.fail("%s", line)
	}
	if len(found) == 0 {
		r.Passed++
	}
	r.Notes = append(r.Notes, fmt.Sprintf("%d secrets were looked for in %d logs: found %d times", secrets.Len(), files, len(found)))
}

// mostShown bounds the failures that are printed.
const mostShown = 200

// print writes the report; its last line is for programs.
func (r *report) print(out io.Writer, rows []row) {
	for i, f := range r.Failures {
		if i == mostShown {
			fmt.Fprintf(out, "and %d more\n", len(r.Failures)-i)
			break
		}
		fmt.Fprintln(out, "FAILED", f)
	}
	columns := 0
	for _, t := range r.Arrangements {
		fmt.Fprintf(out, "%3d x %-2d %5d cells %d mismatches  %s\n", t.Rows, t.Columns, t.Tried, t.Mismatches, t.Name)
		columns = max(columns, t.Columns)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(out, n)
	}
	fmt.Fprintf(out, "%d x %d, %d cells in %d arrangements, mismatches %d, %.0f s\n", len(rows), columns, r.Cells, len(r.Arrangements), r.Mismatches, r.Seconds)
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
}

func (r *report) write(file string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o600)
}
