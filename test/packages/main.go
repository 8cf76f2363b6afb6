// Command packages makes the files of a release in two clones at different paths, compares them, and uses them as
// operators do: it verifies signatures, installs, upgrades, removes and purges packages in a tree of Debian, starts the
// services of the units, and checks image, manifests, formula, manual pages and completions.
//
// It does not run systemd: a service is started as its unit says, as its user and with its environment, without the
// restrictions of the unit. It uses no container engine.
//
// Invariant: a case that did not run is a failure.
package main

import (
	"context"
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

func main() { rig.Main("packages", run) }

// limit bounds a run: it builds every program for every platform twice.
const limit = 3 * time.Hour

// site is one run.
type site struct {
	tools     string // directory of nfpm
	platforms string // of the release; "": all
	clones    string // directory of existing clones with a release each; "": they are made
	dir       string // data of the run
	first     string // clones with a release each
	second    string
	newer     string // clone with a release of a later commit
}

// dist returns the directory of the release.
func (s *site) dist() string { return filepath.Join(s.first, "dist") }

// testCase is a case.
type testCase struct {
	name string
	play func(ctx context.Context, s *site) (evidence string, err error)
}

// cases are run in their order. All need the release of the first one.
var cases = []testCase{
	{"two clones have equal releases", reproducible},
	{"checksums", checkSums},
	{"signature and its refusals", checkSignature},
	{"archives run and say their version", checkArchives},
	{"bills of materials equal the programs", checkSBOMs},
	{"manual pages", checkManuals},
	{"completions", checkCompletions},
	{"units are hardened", checkUnits},
	{"formula", checkFormula},
	{"manifests name the image", checkManifests},
	{"image is valid and runs unprivileged", checkImage},
	{"rpm packages", checkRPMs},
	{"deb packages: install, start, upgrade, remove, purge", checkDebs},
}

func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	fs := flag.NewFlagSet("packages", flag.ContinueOnError)
	fs.SetOutput(out)
	s := &site{}
	fs.StringVar(&s.tools, "tools", "", "directory of the Go tools")
	fs.StringVar(&s.platforms, "platforms", "", "platforms of the release (default: all, which a complete run needs)")
	fs.StringVar(&s.clones, "clones", "", "directory that keeps the clones, which the next run with it uses again")
	only := fs.String("only", "", "run only the cases whose name matches this regular expression")
	keep := fs.Bool("keep", false, "keep the data")
	if err := fs.Parse(args); err != nil {
		return errors.Is(err, flag.ErrHelp), err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return false, err
	}
	if os.Geteuid() != 0 {
		return false, errors.New("run it as root: packages are installed in a separate tree")
	}
	dir, done, err := rig.WorkDir("packages", *keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	s.dir = dir
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := s.makeReleases(ctx); err != nil {
		return false, err
	}
	return s.playAll(ctx, pattern, out), nil
}

// playAll runs the cases and prints what each has shown.
func (s *site) playAll(ctx context.Context, only *regexp.Regexp, out io.Writer) bool {
	passed, failed := 0, 0
	for _, c := range cases {
		if !only.MatchString(c.name) {
			continue
		}
		began := time.Now()
		evidence, err := c.play(ctx, s)
		word := "ok  "
		if err != nil {
			word, evidence = "FAIL", err.Error()
			failed++
		} else {
			passed++
		}
		_, _ = fmt.Fprintf(out, "%s  %-55s %6.1fs  %s\n", word, c.name, time.Since(began).Seconds(), evidence)
	}
	_, _ = fmt.Fprintf(out, "%d passed, %d failed, 0 skipped\n", passed, failed)
	return failed == 0 && passed > 0
}
