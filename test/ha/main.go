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

	"github.com/buildyard/buildyard/test/netns"
	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("ha", run) }

// options are the command line.
type options struct {
	count int
	seed  uint64
	only  *regexp.Regexp
	tools string
	json  string
	keep  bool
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("ha", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.IntVar(&o.count, "n", 20, "strikes of each fault at each part")
	fs.Uint64Var(&o.seed, "seed", 0, "seed of every choice; 0 takes one from the clock")
	only := fs.String("only", "", "regular expression of the cases to run")
	fs.StringVar(&o.tools, "tools", "", "directory of the etcd servers, see scripts/need.sh")
	fs.StringVar(&o.json, "json", "", "file for the report in JSON")
	fs.BoolVar(&o.keep, "keep", false, "keep logs and histories also when all went well")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.count < 1 || o.tools == "" || fs.NArg() > 0 {
		return o, errors.New("usage: ha -tools DIR [-n STRIKES] [-only REGEXP] [-seed N] [-json FILE] [-keep]")
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	o.only, err = regexp.Compile(*only)
	return o, err
}

// run runs itself in namespaces, and there the cases.
func run(ctx context.Context, args []string, out io.Writer) (bool, error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	if !netns.Inside() {
		return netns.RunInside(ctx, args, out)
	}
	if err := netns.SetUp(ctx); err != nil {
		return false, err
	}
	dir, done, err := rig.WorkDir("ha", o.keep)
	if err != nil {
		return false, err
	}
	s := &suite{options: o, out: out, dir: dir, report: report{Seed: o.seed, Count: o.count, Began: time.Now().UTC()}}
	if s.Programs, err = rig.Build(ctx, dir); err != nil {
		return false, errors.Join(err, done())
	}
	s.runCases(ctx)
	s.report.finish(out)
	if !s.report.ok() {
		fmt.Fprintln(out, "logs and histories are in", dir)
		done = func() error { return nil }
	}
	if o.json != "" {
		err = s.report.write(o.json)
	}
	return s.report.ok(), errors.Join(err, done())
}

// suite is one run.
type suite struct {
	options
	rig.Programs
	out    io.Writer
	dir    string
	report report
}

// wants reports whether a case is to be run.
func (s *suite) wants(name string) bool { return s.only.MatchString(name) }

// runCases runs every case that is wanted.
func (s *suite) runCases(ctx context.Context) {
	usual := programs{s.Programs, filepath.Join(s.tools, "etcd")}
	s.onCloud(ctx, "cloud", func() (programs, error) { return usual, nil }, s.usualCases())
	s.onCloud(ctx, "cloud-clock", func() (programs, error) {
		return buildShifted(ctx, s.Programs, filepath.Join(s.dir, "shifted"))
	}, s.clockCases())
	for _, c := range s.versionCases() {
		if s.wants(c.name) {
			s.decide(c.name, func() (string, error) { return c.run(ctx) })
		}
	}
}

// cloudCase is a case on a running cloud.
type cloudCase struct {
	name string
	run  func(ctx context.Context, c *cloud) verdict
}

// usualCases are the cases of the usual programs.
func (s *suite) usualCases() (cases []cloudCase) {
	for _, kind := range faultKinds[:len(faultKinds)-1] {
		cases = append(cases, s.drills(kind)...)
	}
	return append(cases,
		cloudCase{"quorum loss", s.quorumLoss},
		cloudCase{"frozen leader", s.frozenLeader},
		cloudCase{"drained controller", s.drainedController},
	)
}

// clockCases are those that need programs whose clock can be set.
func (s *suite) clockCases() []cloudCase { return s.drills(faultKinds[len(faultKinds)-1]) }

// drills are one kind of fault at every part.
func (s *suite) drills(kind faultKind) (cases []cloudCase) {
	for _, p := range parts {
		cases = append(cases, cloudCase{kind.name + " of a " + p.name, func(ctx context.Context, c *cloud) verdict {
			d := drill{cloud: c, part: p, kind: kind, count: s.count, seed: s.seed, strikes: usualStrikes}
			r := d.run(ctx)
			s.report.Drills = append(s.report.Drills, r)
			for _, problem := range r.Problems[:min(len(r.Problems), mostProblems)] {
				fmt.Fprintf(s.out, "  %s: %s\n", r.Name, problem)
			}
			return r.verdict()
		}})
	}
	return cases
}

// mostProblems bounds the sentences that are printed of a drill; the report has all.
const mostProblems = 10

// onCloud runs the wanted cases on one new cloud. Without a cloud all of them fail.
func (s *suite) onCloud(ctx context.Context, name string, build func() (programs, error), cases []cloudCase) {
	var wanted []cloudCase
	for _, c := range cases {
		if s.wants(c.name) {
			wanted = append(wanted, c)
		}
	}
	if len(wanted) == 0 {
		return
	}
	var c *cloud
	p, err := build()
	if err == nil {
		c, err = buildCloud(ctx, p, filepath.Join(s.dir, name))
	}
	if err == nil {
		err = c.pushTemplate(ctx)
	}
	for _, one := range wanted {
		if err != nil {
			s.add(verdict{one.name, false, "no cloud: " + err.Error()})
			continue
		}
		s.add(one.run(ctx, c))
	}
	if c != nil {
		if err := c.remove(ctx); err != nil {
			s.add(verdict{"end of " + name, false, err.Error()})
		}
	}
}

// decide runs a case that is a function.
func (s *suite) decide(name string, do func() (string, error)) {
	detail, err := do()
	if err != nil {
		s.add(verdict{name, false, err.Error()})
		return
	}
	s.add(verdict{name, true, detail})
}

// add adds a verdict and prints it.
func (s *suite) add(v verdict) {
	s.report.Cases = append(s.report.Cases, v)
	outcome := "failed"
	if v.Passed {
		outcome = "passed"
	}
	fmt.Fprintf(s.out, "%s: %s (%s)\n", outcome, v.Name, v.Detail)
}

// report is the report of a run.
type report struct {
	Seed   uint64        `json:"seed"`
	Count  int           `json:"n"`
	Began  time.Time     `json:"began"`
	Drills []drillResult `json:"drills"`
	Cases  []verdict     `json:"cases"`
	Passed int           `json:"passed"`
	Failed int           `json:"failed"`
}

// finish counts the cases; its last line is the count.
func (r *report) finish(out io.Writer) {
	for _, c := range r.Cases {
		if c.Passed {
			r.Passed++
		} else {
			r.Failed++
		}
	}
	fmt.Fprintf(out, "seed %d, %d strikes of each fault, %s\n", r.Seed, r.Count,
		time.Since(r.Began).Round(time.Second))
	fmt.Fprintf(out, "%d passed, %d failed, 0 skipped\n", r.Passed, r.Failed)
}

func (r *report) ok() bool { return r.Failed == 0 && r.Passed > 0 }

func (r *report) write(path string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}
