// Mutants plants errors in the guarding code of packages, one at a time, and reports which of them
// the package's own tests detect. The tree is not changed: every mutant of a package is compiled
// into one test binary, with a switch that the environment sets, from a copy of the module.
//
// Packages are directories below that of the module, such as ./internal/farm.
//
//	mutants [-n 60] [-seed 1] [-all] [-json FILE] PACKAGE...
//
// A mutant that no test reaches counts as undetected. The exit status is 1 when less than the
// required share is detected in a package.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

//go:embed equivalent.txt
var equivalentText []byte

// options are the options of the command line.
type options struct {
	n, jobs int
	grace   time.Duration // see binary.grace
	seed    uint64
	all     bool
	least   float64 // percent
	json    string
	dir     string // a directory of the module
	excuses []byte // as in equivalent.txt
}

// report is the result for one package.
type report struct {
	Package string    `json:"package"`
	Noticed int       `json:"noticed"`
	Tried   int       `json:"tried"`
	Mutants int       `json:"mutants"` // without the excused ones
	Excused int       `json:"excused"`
	Seconds float64   `json:"seconds"`
	List    []*mutant `json:"list"` // those that were tried
}

func (r *report) share() float64 { return 100 * float64(r.Noticed) / float64(max(r.Tried, 1)) }

func (r *report) good(least float64) bool { return r.Tried > 0 && r.share() >= least }

func main() {
	o := options{grace: 10 * time.Second, dir: ".", excuses: equivalentText}
	flag.IntVar(&o.n, "n", 60, "try this many mutants of a package, chosen by the seed")
	flag.Uint64Var(&o.seed, "seed", 1, "choose other mutants")
	flag.BoolVar(&o.all, "all", false, "try every mutant")
	flag.IntVar(&o.jobs, "jobs", 2, "run this many test processes at a time")
	flag.Float64Var(&o.least, "least", 90, "fail when a smaller share, in per cent, is noticed in a package")
	flag.StringVar(&o.json, "json", "", "write the result of every mutant to this file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	good, err := run(ctx, o, flag.Args(), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
	if !good || err != nil {
		os.Exit(1)
	}
}

// run tries the packages one after the other, and reports whether all of them pass.
func run(ctx context.Context, o options, packages []string, out io.Writer) (bool, error) {
	excuses, err := readExcuses(bytes.NewReader(o.excuses))
	if err != nil {
		return false, fmt.Errorf("equivalent.txt: %w", err)
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}")
	list.Dir = o.dir
	module, err := list.Output()
	if err != nil {
		return false, fmt.Errorf("finding the module: %w", err)
	}
	dir := strings.TrimSpace(string(module))

	fmt.Fprintf(out, "seed %d\n", o.seed)
	var reports []*report
	passed, failed := 0, 0
	for _, name := range packages {
		r, err := o.tryPackage(ctx, dir, name, excuses)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil:
			fmt.Fprintf(out, "%s: %v\n", name, err)
			failed++
			continue
		}
		r.print(out, o.least)
		reports = append(reports, r)
		if r.good(o.least) {
			passed++
		} else {
			failed++
		}
	}
	if o.json != "" {
		text, err := json.MarshalIndent(reports, "", "  ")
		if err != nil {
			return false, err
		}
		if err := os.WriteFile(o.json, text, 0o644); err != nil {
			return false, err
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed, 0 skipped\n", passed, failed)
	return failed == 0 && passed > 0, nil
}

func (o options) tryPackage(ctx context.Context, moduleDir, name string, excuses []*excuse) (*report, error) {
	began := time.Now()
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	module := filepath.Join(temp, "module")
	if err := copyModule(moduleDir, module); err != nil {
		return nil, err
	}
	src, err := load(ctx, module, name)
	if err != nil {
		return nil, err
	}
	planted, texts, err := src.plant(module)
	if err != nil {
		return nil, err
	}
	pkg, err := filepath.Rel(module, src.dir)
	if err != nil {
		return nil, err
	}
	mutants, err := withoutExcused(filepath.ToSlash(pkg), planted, excuses)
	if err != nil {
		return nil, err
	}
	r := &report{
		Package: filepath.ToSlash(pkg), Mutants: len(mutants), Excused: len(planted) - len(mutants),
		List: o.choose(mutants),
	}

	b, err := compile(ctx, src, texts, temp)
	if err != nil {
		return nil, err
	}
	b.jobs, b.grace = o.jobs, o.grace
	if err := b.record(ctx, len(planted)); err != nil {
		return nil, err
	}
	if err := parallel(o.jobs, r.List, func(m *mutant) error { return b.try(ctx, m) }); err != nil {
		return nil, err
	}
	r.Seconds = time.Since(began).Seconds()
	for _, m := range r.List {
		r.Tried++
		if m.Result == noticed || m.Result == timedOut {
			r.Noticed++
		}
	}
	return r, nil
}

// choose selects some of the mutants by the seed, in the order of the code. The selection depends
// on each mutant alone: a change of other code does not affect it.
func (o options) choose(mutants []*mutant) []*mutant {
	if o.all || o.n >= len(mutants) {
		return mutants
	}
	rank := map[*mutant]string{}
	for _, m := range mutants {
		sum := sha256.Sum256(fmt.Append(nil, o.seed, m.File, m.Function, m.Operator, m.Source))
		rank[m] = string(sum[:])
	}
	chosen := slices.Clone(mutants)
	slices.SortStableFunc(chosen, func(a, b *mutant) int { return cmp.Compare(rank[a], rank[b]) })
	chosen = chosen[:o.n]
	slices.SortFunc(chosen, func(a, b *mutant) int { return a.ID - b.ID })
	return chosen
}

func (r *report) print(out io.Writer, least float64) {
	verdict := "ok"
	if !r.good(least) {
		verdict = fmt.Sprintf("less than %.0f %%", least)
	}
	fmt.Fprintf(out, "%s %d/%d %.0f %% %s (%d mutants, %d equivalent, %.0f s)\n",
		r.Package, r.Noticed, r.Tried, r.share(), verdict, r.Mutants, r.Excused, r.Seconds)
	for _, m := range r.List {
		if m.Result == unnoticed || m.Result == notReached {
			fmt.Fprintf(out, "  %s:%d %s %s (%s): %s\n", m.File, m.Line, m.Function, m.Operator, m.Result, m.Source)
		}
	}
}
