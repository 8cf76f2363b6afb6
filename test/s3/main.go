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

func main() { rig.Main("s3", run) }

// runLimit bounds a run.
const runLimit = 60 * time.Minute

// options are the command line.
type options struct {
	gateway string // program of the S3 server
	bin     string // directory of built programs; "": they are built
	only    *regexp.Regexp
	kills   int // kills of the registry
	pairs   int // pairs of pulls that are compared
	seed    uint64
	json    string
	keep    bool
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("s3", flag.ContinueOnError)
	fs.SetOutput(out)
	only := fs.String("only", "", "only the cases whose name matches this regular expression")
	fs.StringVar(&o.gateway, "versitygw", "", "program of the S3 server")
	fs.StringVar(&o.bin, "bin", "", "directory with the built program buildyard (default: it is built)")
	fs.IntVar(&o.kills, "kills", 40, "kills of the registry at requests to the bucket")
	fs.IntVar(&o.pairs, "pairs", 10, "pairs of pulls from the bucket and from a disk that are compared, at least 2")
	fs.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of the faults")
	fs.StringVar(&o.json, "json", "", "file for the report in JSON")
	fs.BoolVar(&o.keep, "keep", false, "keep data and logs")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 || o.gateway == "" || o.pairs < 2 {
		return o, errors.New("usage: s3 -versitygw PROGRAM [-only REGEXP] [-kills N] [-pairs N] [-seed N] " +
			"[-json FILE] [-keep]")
	}
	o.only, err = regexp.Compile(*only)
	return o, err
}

// result is the outcome of a case.
type result struct {
	Figures  map[string]float64 `json:"figures,omitempty"` // seconds and ratios, for other programs
	Name     string             `json:"name"`
	Passed   bool               `json:"passed"`
	Evidence string             `json:"evidence,omitempty"`
	Problem  string             `json:"problem,omitempty"`
	Seconds  float64            `json:"seconds"`
}

// testCase is one case. Its evidence is printed.
type testCase struct {
	name string
	run  func(ctx context.Context, s *stage) (evidence string, err error)
}

// cases are all cases, in the order in which they run. All are required.
var cases = []testCase{
	{"server", caseServer},
	{"suites", caseSuites},
	{"life of templates", caseLife},
	{"requests of a commit", caseRequests},
	{"pull by presigned URL", casePresigned},
	{"faults of the server", caseFaults},
	{"kill -9 at requests", caseKills},
	{"owner", caseOwner},
	{"frozen owner", caseFrozen},
	{"race for the lease", caseRace},
	{"copy from disk", caseCopy},
	{"pull compared with disk", casePullRatio},
	{"mirror", caseMirror},
}

func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	dir, done, err := rig.WorkDir("s3", o.keep)
	if err != nil {
		return false, err
	}
	s, err := newStage(ctx, o, dir)
	if err != nil {
		return false, errors.Join(err, done())
	}
	fmt.Fprintf(out, "seed %d\n", o.seed)
	var results []result
	for _, c := range cases {
		if o.only.MatchString(c.name) {
			results = append(results, s.play(ctx, c, out))
		}
	}
	err = errors.Join(s.close(), done())
	return report(results, o, out) && err == nil, err
}

// play runs one case with an empty bucket.
func (s *stage) play(ctx context.Context, c testCase, out io.Writer) result {
	began := time.Now()
	r := result{Name: c.name, Figures: map[string]float64{}}
	s.figures = r.Figures
	evidence, err := func() (string, error) {
		if err := s.reset(ctx); err != nil {
			return "", err
		}
		return c.run(ctx, s)
	}()
	err = errors.Join(err, s.stopAll())
	r.Passed, r.Evidence, r.Seconds = err == nil, evidence, time.Since(began).Seconds()
	word := "PASS"
	if err != nil {
		word, r.Problem = "FAIL", err.Error()
	}
	fmt.Fprintf(out, "%s %s (%.1f s): %s %s\n", word, c.name, r.Seconds, evidence, r.Problem)
	return r
}

func report(results []result, o options, out io.Writer) bool {
	passed, failed := 0, 0
	for _, r := range results {
		if r.Passed {
			passed++
		} else {
			failed++
		}
	}
	if o.json != "" {
		raw, err := json.MarshalIndent(results, "", " ")
		if err == nil {
			err = os.WriteFile(filepath.Clean(o.json), append(raw, '\n'), 0o600)
		}
		if err != nil {
			fmt.Fprintln(out, err)
			failed++
		}
	}
	if passed+failed == 0 {
		failed++ // no case matches
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, 0)
	return failed == 0
}
