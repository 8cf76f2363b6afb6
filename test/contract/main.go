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
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("contract", run) }

// options are the command line.
type options struct {
	only *regexp.Regexp // cases by their names; coverage is then not checked
	json string
	save string // file for one response of each route and shape; only without authentication
	keep bool
	auth bool // as the root user, with a key, and with a certificate
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("contract", flag.ContinueOnError)
	fs.SetOutput(out)
	only := fs.String("only", "", "run only the cases whose file or name matches this regular expression")
	fs.StringVar(&o.json, "json", "", "file for the report in JSON")
	fs.StringVar(&o.save, "record", "", "file for one response of each route and shape, for testdata/responses.jsonl")
	fs.BoolVar(&o.keep, "keep", false, "keep data and logs")
	fs.BoolVar(&o.auth, "auth", false,
		"with authentication: once each with the root token, an API key and a client certificate")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, errors.New("usage: contract [-only REGEXP] [-json FILE] [-record FILE] [-keep] [-auth]")
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
	dir, done, err := rig.WorkDir("contract", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	programs, err := rig.Build(ctx, dir)
	if err != nil {
		return false, err
	}
	r := &report{well: true}
	if !o.auth {
		r, err = o.round(ctx, &stage{dir: dir, programs: programs}, out)
	} else {
		err = o.rounds(ctx, programs, dir, r, out)
	}
	if err != nil {
		return false, err
	}
	r.Seconds = time.Since(began).Seconds()
	r.sum(out)
	if o.json != "" {
		if err := r.write(o.json); err != nil {
			return false, err
		}
	}
	return r.well, nil
}

// rounds runs the suite with each kind of credentials, one after the other, and searches the logs
// of each for every secret that was used.
func (o options) rounds(ctx context.Context, programs rig.Programs, dir string, all *report, out io.Writer) error {
	for i, kind := range []string{byRoot, byKey, byCertificate} {
		below, secrets := filepath.Join(dir, fmt.Sprint(i)), &rig.Secrets{}
		a, err := newAccess(ctx, kind, below, secrets)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "with the %s:\n", kind)
		r, err := o.round(ctx, &stage{dir: below, programs: programs, access: a}, out)
		a.close()
		if err != nil {
			return fmt.Errorf("with the %s: %w", kind, err)
		}
		found, files, err := secrets.Search(below)
		if err != nil {
			return err
		}
		for _, line := range found {
			fmt.Fprintln(out, "FAILED", line)
			r.Failed, r.well = r.Failed+1, false
		}
		r.sum(out)
		fmt.Fprintf(out, "%d secrets were looked for in %d logs: found %d times\n", secrets.Len(), files, len(found))
		all.add(r)
	}
	return nil
}

// round is one run of all cases.
func (o options) round(ctx context.Context, st *stage, out io.Writer) (r *report, err error) {
	began := time.Now()
	if st.spec, err = loadSpec(); err != nil {
		return nil, err
	}
	st.spec.serves(st.access.features()...)
	rows, err := loadRows(st.access != nil)
	if err != nil {
		return nil, err
	}
	jobs, err := allJobs(st.spec, rows, st.access != nil)
	if err != nil {
		return nil, err
	}
	if o.save != "" && !o.auth {
		st.record = &recorder{kept: map[string]recordedResponse{}}
	}
	st, err = openStage(ctx, st)
	defer func() { err = errors.Join(err, st.close()) }()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, st.tails())
	}
	fmt.Fprintf(out, "two clouds are up after %.1f s\n", time.Since(began).Seconds())
	p := &caseRunner{spec: st.spec, ledger: st.ledger, stage: st}
	r = p.runAll(ctx, o, jobs)
	if st.record != nil {
		if err := st.record.write(o.save); err != nil {
			return nil, err
		}
	}
	r.finish(p, rows, o)
	r.Seconds = time.Since(began).Seconds()
	r.print(out)
	return r, nil
}

// job is one case, wherever it comes from.
type job struct {
	name  string
	alone bool
	rows  []string
	play  func(context.Context, *caseRunner) []string
}

// errSkip begins the fault of a case that cannot run on this machine.
const skipMark = "skipped: "

// allJobs returns the cases of the files, the scenes, and those that follow from the file.
func allJobs(s *spec, rows []row, authenticated bool) ([]job, error) {
	var jobs []job
	for _, sc := range scenes {
		if sc.auth && !authenticated {
			continue
		}
		jobs = append(jobs, job{name: "scene: " +
			sc.name, alone: sc.alone, rows: sc.rows, play: func(ctx context.Context, p *caseRunner) []string {
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
		if c.Auth && !authenticated {
			continue
		}
		jobs = append(jobs, job{name: c.file + ": " +
			c.Case, alone: c.Alone, rows: c.Rows, play: func(ctx context.Context, p *caseRunner) []string {
			return p.play(ctx, c)
		}})
	}
	for _, r := range s.routes {
		for _, b := range derive(r) {
			jobs = append(jobs, job{name: "derived: " +
				b.name, play: func(ctx context.Context, p *caseRunner) []string { return p.spoilt(ctx, b) }})
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
				return fmt.Errorf("%s claims %q, which is not a row of rows.txt", j.name, claim)
			}
		}
	}
	return nil
}

// runAll runs the cases, many at a time, and then those that need to be alone.
func (p *caseRunner) runAll(ctx context.Context, o options, jobs []job) *report {
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
	Routes, Params, Rows    counts
	Failures                []string
	Seconds                 float64
	Partial                 bool `json:",omitempty"` // only some cases ran: what is missing says nothing

	mu   sync.Mutex
	well bool
}

// add adds up the reports of rounds.
func (r *report) add(one *report) {
	r.Passed, r.Failed, r.Skipped, r.Calls = r.Passed+one.Passed, r.Failed+one.Failed, r.Skipped+one.Skipped,
		r.Calls+one.Calls
	for _, t := range []struct{ all, one *counts }{
		{&r.Routes, &one.Routes}, {&r.Params, &one.Params}, {&r.Rows, &one.Rows},
	} {
		t.all.Met, t.all.All = t.all.Met+t.one.Met, t.all.All+t.one.All
		t.all.Missing = append(t.all.Missing, t.one.Missing...)
	}
	r.Failures = append(r.Failures, one.Failures...)
	r.Partial, r.well = one.Partial, r.well && one.well
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

// finish evaluates the run as a whole.
func (r *report) finish(p *caseRunner, rows []row, o options) {
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
	for _, fault := range p.stage.receiver.undocumented() {
		r.note(job{name: "events as in docs/reference/events.md"}, []string{fault})
	}
	r.Routes, r.Params, r.Rows = p.ledger.sum(p.spec, rows)
	r.Calls, r.Partial = p.ledger.calls, o.only != nil
	r.well = r.whole()
}

// whole reports whether nothing failed and nothing is missing.
func (r *report) whole() bool {
	return r.Failed == 0 && r.Passed > 0 &&
		(r.Partial || r.Routes.Met == r.Routes.All && r.Params.Met == r.Params.All && r.Rows.Met == r.Rows.All)
}

// print writes what failed and what is missing.
func (r *report) print(out io.Writer) {
	for _, f := range r.Failures {
		fmt.Fprintln(out, "FAILED", f)
	}
	if !r.Partial {
		for _, t := range []struct {
			what string
			counts
		}{{"route", r.Routes}, {"parameter", r.Params}, {"row", r.Rows}} {
			for _, line := range t.Missing {
				fmt.Fprintf(out, "MISSING %-9s %s\n", t.what, line)
			}
		}
	}
}

// sum writes the figures; its last line is for programs.
func (r *report) sum(out io.Writer) {
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
