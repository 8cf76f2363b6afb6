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
	"slices"
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
	Arrangements            []result
	Cells, Mismatches       int
	Notes                   []string
	Failures                []string
	Seconds                 float64
}

// result is the result of one arrangement at one address.
type result struct {
	Name                       string
	Rows, Columns              int
	Planned, Tried, Mismatches int
}

// fail records a failure.
func (r *report) fail(format string, args ...any) {
	r.Failed++
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

// note records the result of a case.
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
	rows, err := allRows() //nolint:contextcheck // the handlers of the tables are not called
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
	x := &runner{report: r, dir: dir, programs: programs, secrets: &rig.Secrets{}, rows: rows}
	x.all(ctx, o)
	r.search(x.secrets, dir)
	r.Seconds = time.Since(began).Seconds()
	r.print(out, rows)
	if o.json != "" {
		if err := r.write(o.json); err != nil {
			return false, err
		}
	}
	return r.Failed == 0 && r.Passed > 0, ctx.Err()
}

// runner is what the arrangements of a run share.
type runner struct {
	*report
	dir      string
	programs rig.Programs
	secrets  *rig.Secrets
	rows     []row
}

// all runs the arrangements and the licenses that were asked for.
func (x *runner) all(ctx context.Context, o options) {
	for i, a := range arrangements {
		if o.only.MatchString(a.name) {
			x.arrange(ctx, a, filepath.Join(x.dir, fmt.Sprint(i)))
		}
	}
	for i, tier := range tiers {
		if o.only.MatchString(tier.name) {
			x.note(tier.name, tier.play(ctx, filepath.Join(x.dir, fmt.Sprint("tier", i)), x.programs, x.secrets))
		}
	}
}

// arrange runs one arrangement.
func (x *runner) arrange(ctx context.Context, a arrangement, dir string) {
	stand := rig.NewStand(ctx)
	defer stand.Close()
	s := &deployment{
		name: a.name, dir: dir, split: a.split, sides: a.sides, settings: a.settings, tls: a.tls, secrets: x.secrets,
		programs: x.programs, stand: stand,
	}
	defer func() { x.note(a.name+": the end", s.close()) }()
	err := s.open(ctx)
	if err == nil && a.ready != nil {
		err = a.ready(ctx, s)
	}
	if err != nil {
		x.fail("%s: %v\n%s", a.name, err, s.tails())
		return
	}
	for _, g := range []grid{
		{"", a.columns, func(row) bool { return true }, func(r row) string { return s.addresses[r.service] }, s.expect},
		{", the local port of the registry", a.local, func(r row) bool {
			return r.service == registry &&
				r.when == always
		}, func(row) string { return s.local }, s.expect},
		{", the interface for nodes", a.queue, func(r row) bool { return r.service == controller }, func(row) string {
			return s.queue
		}, s.expectOfNodes},
	} {
		if g.columns != nil {
			x.matrix(ctx, s, g)
		}
	}
	for _, c := range a.cases {
		said, err := c.do(ctx, s)
		if said != "" {
			x.Notes = append(x.Notes, a.name+": "+c.name+": "+said)
		}
		x.note(a.name+": "+c.name, err)
	}
	x.note(a.name+": the metrics", s.metrics(ctx))
}

// expectOfNodes is what the interface for nodes answers: it has the node link, the packages, the
// handshake for machines that join with a key, and the two probes alone.
func (s *deployment) expectOfNodes(r row, c caller) verdict {
	switch r.needs {
	case nodeOnly, nodeOrKnown, joining:
		return s.expect(r, c)
	}
	switch r.method + " " + r.path {
	case "GET /livez", "GET /readyz":
		return reached
	case "POST /tap/v1/hand", "POST /tap/v1/shake":
		return s.expect(r, c)
	}
	return closed
}

// grid is a matrix at one address of each service.
type grid struct {
	where   string // behind the arrangement's name
	columns []column
	has     func(row) bool // which rows
	address func(row) string
	expect  func(row, caller) verdict
}

// matrix tries every cell of a grid.
func (x *runner) matrix(ctx context.Context, s *deployment, g grid) {
	rows := slices.DeleteFunc(slices.Clone(x.rows), func(r row) bool { return !g.has(r) })
	t := result{Name: s.name + g.where, Rows: len(rows), Columns: len(g.columns)}
	for _, col := range g.columns {
		for _, r := range rows {
			if col.only != "" && col.only != r.service {
				continue
			}
			t.Planned++
			r = s.onSite(r)
			c, err := col.of(ctx, s, r)
			if err != nil {
				x.fail("%s: %s as %s: %v", t.Name, r.pattern, col.name, err)
				continue
			}
			t.Tried++
			if fault := s.ask(ctx, g.address(r), r, c, g.expect(r, c)); fault != "" {
				t.Mismatches++
				x.fail("%s: %s: %s as %s: %s", t.Name, r.service, r.pattern, col.name, fault)
				continue
			}
			x.Passed++
		}
	}
	if t.Tried != t.Planned {
		x.fail("%s: %d of %d cells were tried", t.Name, t.Tried, t.Planned)
	}
	x.Arrangements = append(x.Arrangements, t)
	x.Cells, x.Mismatches = x.Cells+t.Tried, x.Mismatches+t.Mismatches
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
	r.Notes = append(r.Notes, fmt.Sprintf("%d secrets were looked for in %d logs: found %d times", secrets.Len(), files,
		len(found)))
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
	fmt.Fprintf(out, "%d x %d, %d cells in %d arrangements, mismatches %d, %.0f s\n", len(rows), columns, r.Cells,
		len(r.Arrangements), r.Mismatches, r.Seconds)
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
}

func (r *report) write(file string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o600)
}
