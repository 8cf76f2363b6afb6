package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/test/rig"
	"github.com/buildyard/buildyard/test/scannerdiff"
	"github.com/buildyard/buildyard/test/scantree"
)

//go:embed differences.tsv
var differences string

func main() { rig.Main("peers", run) }

// options are the command line.
type options struct {
	dir, scalibr, syft string
	govulncheck        string
	advisories         string // archive of Go's vulnerability database
	only               string // "packages", "reachable" or "" for both
	all                bool   // print every difference, explained or not
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&o.dir, "dir", "", "directory to scan (default: the large tree, made when it is not there)")
	fs.StringVar(&o.scalibr, "scalibr", "", "program of osv-scalibr")
	fs.StringVar(&o.syft, "syft", "", "program of syft")
	fs.StringVar(&o.govulncheck, "govulncheck", "", "program of govulncheck")
	fs.StringVar(&o.advisories, "advisories", "", "archive of Go's vulnerability database in OSV's form")
	fs.StringVar(&o.only, "only", "", "compare only packages, or only reachable functions")
	fs.BoolVar(&o.all, "all", false, "print every difference")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.scalibr == "" || o.syft == "" || o.govulncheck == "" || o.advisories == "" || fs.NArg() > 0 ||
		!slices.Contains([]string{"", onlyPackages, onlyReachable}, o.only) {
		return o, errors.New("usage: peers -scalibr FILE -syft FILE -govulncheck FILE -advisories FILE " +
			"[-only packages|reachable] [-dir DIR] [-all]")
	}
	return o, nil
}

// Values of -only.
const (
	onlyPackages  = "packages"
	onlyReachable = "reachable"
)

// limit limits the duration of a run, including the creation of the tree.
const limit = 40 * time.Minute

// peer is another scanner.
type peer struct {
	name string
	scan func(ctx context.Context, program, dir, work string) (scannerdiff.Findings, error)
	file string // its program
}

// run compares and reports whether every difference is explained.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	work, err := os.MkdirTemp("", "buildyard-peers-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)
	r := &report{out: out}
	if o.only != onlyPackages {
		if err := r.compareReachable(ctx, o, work); err != nil {
			return false, err
		}
	}
	if o.only != onlyReachable {
		if err := r.comparePackages(ctx, o, work); err != nil {
			return false, err
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed, 0 skipped\n", r.passed, r.failed)
	return r.failed == 0, nil
}

// report counts the comparisons of a run.
type report struct {
	out            io.Writer
	passed, failed int
}

// comparePackages compares the packages that are found in a large tree.
func (r *report) comparePackages(ctx context.Context, o options, work string) (err error) {
	if o.dir == "" {
		if o.dir, err = scantree.Make(ctx, func(f string, a ...any) { fmt.Fprintf(r.out, f+"\n", a...) }); err != nil {
			return err
		}
	}
	began := time.Now()
	ours, err := scannerdiff.ScanOurs(ctx, o.dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "ours: %d packages in %.1f s\n", len(ours), time.Since(began).Seconds())
	d := scannerdiff.NewReport(differences, r.out, o.all)
	for _, p := range []peer{{"scalibr", scannerdiff.ScanScalibr, o.scalibr}, {"syft", scannerdiff.ScanSyft, o.syft}} {
		began := time.Now()
		theirs, err := p.scan(ctx, p.file, o.dir, filepath.Join(work, p.name))
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Fprintf(r.out, "%s: %d packages in %.1f s\n", p.name, len(theirs), time.Since(began).Seconds())
		for _, k := range slices.Sorted(slices.Values(catalog.Kinds)) {
			d.Compare(p.name, k, ours, theirs)
		}
	}
	passed, failed := d.End()
	r.passed, r.failed = r.passed+passed, r.failed+failed
	return nil
}
