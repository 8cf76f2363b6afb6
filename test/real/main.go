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

func main() { rig.Main("real", run) }

// limit bounds a run, with the downloads of the first one.
const limit = 2 * time.Hour

// What a run has to measure at least, in packages of two versions and in the vulnerabilities between them. Those of the
// kernel are not counted.
const (
	minPackages        = 60
	minVulnerabilities = 300
)

// site is one run.
type site struct {
	tools, shared string
	dir           string
	out           io.Writer
	scanner       *scanner
	debian        *debian
	databases     map[string]string // by name
	others        map[string]*pair  // systems of packages that were built, by name
}

// testCase is a case.
type testCase struct {
	name string
	play func(ctx context.Context, s *site) (evidence string, err error)
}

// cases are run in their order.
var cases = []testCase{
	{"debian: packages as dpkg lists them", debianPackages},
	{"debian: security tracker", matchDebian("tracker")},
	{"debian: OSV", matchDebian("osv")},
	{"debian: security tracker and OSV", matchDebian("tracker", "osv")},
	{"debian: packages of languages in packages", ownedByDebian},
	{"debian: enough is measured", measured},
	{"rocky: packages of rpmbuild, SQLite", built("rocky")},
	{"almalinux: packages of rpmbuild, Berkeley DB", built("almalinux")},
	{"sles: packages of rpmbuild, ndb", built("sles")},
	{"alpine: packages of apk", built("alpine")},
	{"packages as syft finds them", asSyft},
}

func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	fs := flag.NewFlagSet("real", flag.ContinueOnError)
	fs.SetOutput(out)
	s := &site{out: out, databases: map[string]string{}, others: map[string]*pair{}}
	fs.StringVar(&s.tools, "tools", "", "directory of the Go tools, which keeps downloaded packages")
	fs.StringVar(&s.shared, "shared", "../shared", "directory that contains data/vuln")
	only := fs.String("only", "", "run only the cases whose name matches this regular expression")
	keep := fs.Bool("keep", false, "keep the data")
	if err := fs.Parse(args); err != nil {
		return errors.Is(err, flag.ErrHelp), err
	}
	if s.tools == "" || fs.NArg() > 0 {
		return false, errors.New("usage: real -tools DIR [-shared DIR] [-only REGEXP] [-keep]")
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return false, err
	}
	if os.Geteuid() != 0 {
		return false, errors.New("run it as root: packages are unpacked in a separate tree")
	}
	if s.shared, err = filepath.Abs(s.shared); err != nil {
		return false, err
	}
	dir, done, err := rig.WorkDir("real", *keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	s.dir = dir
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := s.prepare(ctx); err != nil {
		return false, err
	}
	return s.playAll(ctx, pattern), nil
}

// prepare makes what all cases need.
func (s *site) prepare(ctx context.Context) (err error) {
	if s.scanner, err = newScanner(ctx, filepath.Join(s.dir, "scanner")); err != nil {
		return err
	}
	began := time.Now()
	if s.debian, err = makeDebian(ctx, s.dir, filepath.Join(s.tools, "debs")); err != nil {
		return err
	}
	s.debian.print(s.out)
	fmt.Fprintf(s.out, "made in %.0f s\n", time.Since(began).Seconds())
	began = time.Now()
	if err := s.makeOthers(ctx); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "made systems of RPM and apk in %.0f s\n", time.Since(began).Seconds())
	return nil
}

// playAll runs the cases and prints what each has shown.
func (s *site) playAll(ctx context.Context, only *regexp.Regexp) bool {
	passed, failed, skipped := 0, 0, 0
	for _, c := range cases {
		if !only.MatchString(c.name) {
			skipped++
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
		fmt.Fprintf(s.out, "%s  %-42s %5.1fs  %s\n", word, c.name, time.Since(began).Seconds(), evidence)
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return failed == 0 && skipped == 0 && passed > 0
}
