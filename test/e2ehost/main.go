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
	"regexp"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("e2ehost", run) }

// options are the command line.
type options struct {
	only   *regexp.Regexp // test cases by their names
	json   string
	keep   bool
	files  int // of a storm
	shared string
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("e2ehost", flag.ContinueOnError)
	fs.SetOutput(out)
	only := fs.String("only", "", "only the test cases whose name matches this regular expression: "+
		strings.Join(actNames(), ", "))
	fs.StringVar(&o.json, "json", "", "file for the rows in JSON")
	fs.IntVar(&o.files, "files", stormFiles, "files of the storm; it fails with fewer, which are for trying it")
	fs.BoolVar(&o.keep, "keep", false, "keep what was installed, and the logs")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, errors.New("usage: e2ehost [-only REGEXP] [-json FILE] [-files N] [-keep]")
	}
	o.shared = cmp.Or(os.Getenv("SHARED"), "../shared")
	o.only, err = regexp.Compile(*only)
	return o, err
}

// limit limits the duration of a run, with all downloads.
const limit = 30 * time.Minute

// testCase is an independent part of the test.
type testCase struct {
	name string
	play func(ctx context.Context, s *stage) error
}

var acts = []testCase{
	{"use", use},
	{"job", job},
	{"kill", kill},
	{"storm", storm},
	{"user", user},
}

func actNames() (names []string) {
	for _, a := range acts {
		names = append(names, a.name)
	}
	return names
}

// run executes one run.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := newStage(ctx, o, out)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, a := range acts {
		if !o.only.MatchString(a.name) {
			continue
		}
		if err := a.play(ctx, s); err != nil {
			s.report(row{Name: a.name, Differences: []string{"it broke off: " + err.Error()}})
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
	return s.sum()
}

// sum ends a run and reports whether it succeeded.
func (s *stage) sum() (bool, error) {
	if s.json != "" {
		b, err := json.MarshalIndent(s.rows, "", " ")
		if err == nil {
			err = os.WriteFile(s.json, append(b, '\n'), 0o644)
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
	fmt.Fprintf(s.out, "%.0f s in all\n%d passed, %d failed, 0 skipped\n", time.Since(s.began).Seconds(), passed,
		len(s.rows)-passed)
	return passed == len(s.rows) && passed > 0, nil
}
