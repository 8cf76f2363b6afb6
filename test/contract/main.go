package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("contract", run) }

// options are the command line.
type options struct {
	only *regexp.Regexp // cases by their names; coverage is then not judged
	json string
	keep bool
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("contract", flag.ContinueOnError)
	fs.SetOutput(out)
	only := fs.String("only", "", "run only the cases whose file or name matches this regular expression")
	fs.StringVar(&o.json, "json", "", "file for the report in JSON")
	fs.BoolVar(&o.keep, "keep", false, "keep data and logs")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, errors.New("usage: contract [-only REGEXP] [-json FILE] [-keep]")
	}
	if *only != "" {
		o.only, err = regexp.Compile(*only)
	}
	return o, err
}

// workers is how many cases run at a time: most of them wait.
const workers = 12

// run is one run of the suite.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	began := time.Now()
	s, err := loadSpec()
	if err != nil {
		return false, err
	}
	s.serves()
	rows, err := loadRows()
	if err != nil {
		return false, err
	}
	jobs, err := allJobs(s, rows)
	if err != nil {
		return false, err
	}
	dir, done, err := rig.WorkDir("contract", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	programs, err := rig.Build(ctx, dir)
	if err != nil {
		return false, err
	}
	l := newLedger()
	st, err := openStage(ctx, programs, dir, s, l)
	defer func() { err = errors.Join(err, st.close()) }()
	if err != nil {
		return false, fmt.Errorf("%w\n%s", err, st.tails())
	}
	fmt.Fprintf(out, "two clouds are up after %.1f s\n", time.Since(began).Seconds())
	p := &player{spec: s, ledger: l, stage: st}
	r := p.runAll(ctx, o, jobs)
	r.finish(p, rows, o)
	r.Seconds = time.Since(began).Seconds()
	r.print(out)
	if o.json != "" {
		if err := r.write(o.json); err != nil {
			return false, err
		}
	}
	return r.well(), nil
}

// job is one case, wherever it comes from.
type job struct {
	name  string
	alone bool
	rows  []string
	play  func(context.Context, *player) []string
}

// errSkip begins the fault of a case that cannot run on this machine.
const skipMark = "skipped: "

// allJobs gives the cases of the files, the scenes, and those that follow from the file.
func allJobs(s *spec, rows []row) ([]job, error) {
	var jobs []job
	for _, sc := range scenes {
		jobs = append(jobs, job{name: "scene: " + sc.name, alone: sc.alone, rows: sc.rows, play: func(ctx context.Context, p *player) []string {
			if err := sc.play(ctx, p); err != nil {
				return []string{err.Error()}
			}
			p.ledger.claim(sc.rows)
			return nil
		}})
	}
	cases, err := loadCases()
	if err != nil {
		return nil, err
	}
	for _, c := range cases {
		jobs = append(jobs, job{name: c.file + ": " + c.Case, alone: c.Alone, rows: c.Rows, play: func(ctx context.Context, p *player) []string {
			return p.play(ctx, c)
		}})
	}
	for _, r := range s.routes {
		for _, b := range derive(r) {
			jobs = append(jobs, job{name: "derived: " + b.name, play: func(ctx context.Context, p *player) []string { return p.spoilt(ctx, b) }})
		}
	}
	return jobs, knownRows(jobs, rows)
}

// knownRows refuses claims of rows that do not exist.
func knownRows(jobs []job, rows []row) error {
	known := map[string]bool{}
	for _, r := range rows {
		known["+"+r.id], known["-"+r.id] = true, true
	}
	for _, j := range jobs {
		for _, claim := range j.rows {
			if !known[claim] {
				return fmt.Errorf("%s claims %q, which is no row of rows.txt", j.name, claim)
			}
		}
	}
	return nil
}

// runAll runs the cases, many at a time, and then those that need to be alone.
func (p *player) runAll(ctx context.Context, o options, jobs []job) *report {
	r := &report{}
	var together, alone []job
	for _, j := range jobs {
		switch {
		case o.only != nil && !o.only.MatchString(j.name):
		case j.alone:
			alone = append(alone, j)
		default:
			together = append(together, j)
		}
	}
	queue := make(chan job)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for j := range queue {
				r.note(j, j.play(ctx, p))
			}
		})
	}
	for _, j := range together {
		queue <- j
	}
	close(queue)
	wg.Wait()
	for _, j := range alone {
		r.note(j, j.play(ctx, p))
	}
	return r
}

// report is what a run found.
type report struct {
	Passed, Failed, Skipped int
	Calls                   int
	Routes, Params, Rows    tally
	Failures                []string
	Seconds                 float64
	Partial                 bool `json:",omitempty"` // only some cases ran: what is missing says nothing

	mu sync.Mutex
}

func (r *report) note(j job, faults []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case len(faults) == 0:
		r.Passed++
	case strings.HasPrefix(faults[0], skipMark):
		r.Skipped++
	default:
		r.Failed++
		r.Failures = append(r.Failures, j.name+"\n    "+strings.Join(faults, "\n    "))
	}
}

// finish judges the run as a whole.
func (r *report) finish(p *player, rows []row, o options) {
	for _, c := range p.stage.clouds {
		for _, proxy := range c.proxies {
			for _, fault := range proxy.found() {
				r.note(job{name: "wire"}, []string{fault})
			}
		}
	}
	for _, fault := range p.ledger.kinds.faults() {
		r.note(job{name: "a field changes its type"}, []string{fault})
	}
	r.Routes, r.Params, r.Rows = p.ledger.sum(p.spec, rows)
	r.Calls, r.Partial = p.ledger.calls, o.only != nil
}

// well says whether nothing failed and nothing is missing.
func (r *report) well() bool {
	return r.Failed == 0 && r.Passed > 0 && (r.Partial || r.Routes.Met == r.Routes.All && r.Params.Met == r.Params.All && r.Rows.Met == r.Rows.All)
}

// print writes the report; its last line is for programs.
func (r *report) print(out io.Writer) {
	for _, f := range r.Failures {
		fmt.Fprintln(out, "FAILED", f)
	}
	if !r.Partial {
		for _, t := range []struct {
			what string
			tally
		}{{"route", r.Routes}, {"parameter", r.Params}, {"row", r.Rows}} {
			for _, line := range t.Missing {
				fmt.Fprintf(out, "MISSING %-9s %s\n", t.what, line)
			}
		}
	}
	fmt.Fprintf(out, "%d calls in %.0f s\n", r.Calls, r.Seconds)
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
	fmt.Fprintf(out, "routes %s params %s rows %s cases %d\n", r.Routes, r.Params, r.Rows, r.Passed+r.Failed+r.Skipped)
}

func (r *report) write(file string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o600)
}
