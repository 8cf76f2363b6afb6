package fault

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// target is one kind of program that is killed.
type target struct {
	name  string
	acks  int  // acknowledged calls that are needed for every kill that was asked for
	alone bool // it needs all processors, and runs before the others
	real  bool // it needs real guests, and with them the processors
	share int  // one in so many of the kills that were asked for is done; 0: every one
	// cloud prepares what it works on; nil: run does that.
	cloud func(context.Context, rig.Programs, string) (*rig.Cloud, error)
	run   func(ctx context.Context, s *scene) (result, error)
}

// fewest is the number of kills of a target that does only a share of them.
const fewest = 8

// planned returns the kills of a target when n were asked for.
func (t target) planned(n int) int {
	if t.share == 0 {
		return n
	}
	return min(n, max(fewest, n/t.share))
}

// targets in the order in which they run. Together they need more than ten
// acknowledged calls for every kill that was asked for.
var targets = []target{
	{name: "controller", acks: 100, alone: true, cloud: rig.NewCloud, run: controllerTarget},
	{name: "backup", acks: 5, share: 5, cloud: rig.NewCloud, run: backupTarget},
	{name: "events", acks: 5, share: 5, cloud: rig.NewCloud, run: eventsTarget},
	{name: "registry", acks: 1, run: registryTarget},
	{name: "agent", acks: 4, cloud: rig.NewCloud, run: agentTarget},
	{name: "lazy-pull", acks: lazyRuns, cloud: rig.NewCloud, run: lazyPullTarget},
	{name: "qemu", acks: 1, real: true, cloud: rig.NewCloud, run: qemuTarget},
	{name: "lazy-guest", acks: 1, real: true, share: 6, cloud: rig.NewFrontedCloud, run: lazyGuestTarget},
	{name: "save", acks: 3, cloud: rig.NewSplitCloud, run: saveTarget},
	{name: "qemu-save", acks: 3, real: true, share: 5, cloud: rig.NewCloud, run: qemuSaveTarget},
}

// options are the command line.
type options struct {
	n       int
	seed    uint64
	rate    int
	targets []target
	json    string
	keep    bool
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("fault", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.IntVar(&o.n, "n", 50,
		"kills of every target; of backup, events, qemu-save and lazy-guest a fifth of them or less, and at least 8; "+
			"of registry one and more at each step")
	fs.Uint64Var(&o.seed, "seed", 0, "seed of every choice; 0 takes one from the clock")
	fs.IntVar(&o.rate, "rate", stormRate, "creates a second of the controller target; less proves less")
	names := fs.String("targets", allTargets(), "what to kill")
	fs.StringVar(&o.json, "json", "", "file for the report in JSON")
	fs.BoolVar(&o.keep, "keep", false, "keep data, logs and histories also when all went well")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.n < 1 || o.rate < 1 || fs.NArg() > 0 {
		return o, errors.New("usage: fault [-n KILLS] [-seed N] [-rate N] [-targets LIST] [-json FILE] [-keep]")
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	for name := range strings.SplitSeq(*names, ",") {
		i := slices.IndexFunc(targets, func(t target) bool { return t.name == name })
		if i < 0 {
			return o, fmt.Errorf("unknown target %q", name)
		}
		o.targets = append(o.targets, targets[i])
	}
	return o, nil
}

// allTargets returns the names of all targets as the command line takes them.
func allTargets() string {
	var names []string
	for _, t := range targets {
		names = append(names, t.name)
	}
	return strings.Join(names, ",")
}

// Run runs the whole test and reports whether every required case passed.
func Run(ctx context.Context, args []string, out io.Writer) (bool, error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	b := &bench{n: o.n, seed: o.seed, rate: o.rate, out: &lineWriter{w: out}}
	if b.dir, err = os.MkdirTemp("", "buildyard-fault-"); err != nil {
		return false, err
	}
	if err := os.Chmod(b.dir, 0o755); err != nil { // for the unprivileged user of QEMU
		return false, err
	}
	fmt.Fprintf(out, "seed %d, %d kills of every target\n", o.seed, o.n)
	r := &report{Seed: o.seed, N: o.n, Began: time.Now().UTC()}
	if b.Programs, err = rig.Build(ctx, b.dir); err != nil {
		return false, err
	}
	fmt.Fprintf(out, "built the programs in %s\n", time.Since(r.Began).Round(time.Second))
	r.Results = b.lanes(ctx, o.targets)
	r.evaluate()
	r.print(out)
	return r.ok(), b.finish(r, o)
}

// lanes runs the targets that need the processors one after another, and concurrently the others
// one after another, which mostly wait; before that those that run alone.
func (b *bench) lanes(ctx context.Context, targets []target) []result {
	results := make([]result, len(targets))
	for i, t := range targets {
		if t.alone {
			results[i] = b.measure(ctx, t)
		}
	}
	var wg sync.WaitGroup
	for _, lane := range []bool{false, true} {
		wg.Go(func() {
			for i, t := range targets {
				if t.real == lane && !t.alone {
					results[i] = b.measure(ctx, t)
				}
			}
		})
	}
	wg.Wait()
	return results
}

// lineWriter writes one line at a time.
type lineWriter struct {
	mu sync.Mutex // held over a write to w
	w  io.Writer
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// measure runs one target. Any error makes its figures invalid.
func (b *bench) measure(ctx context.Context, t target) result {
	begin := time.Now()
	r, err := b.stage(ctx, t)
	r.Target, r.Seconds = t.name, time.Since(begin).Seconds()
	switch {
	case errors.Is(err, rig.ErrSkip):
		r.Skipped = err.Error()
	case err != nil:
		r.Unmeasured = err.Error()
	case ctx.Err() != nil:
		r.Unmeasured = "interrupted"
	}
	return r
}

// finish writes the report and removes the data that needs no analysis.
func (b *bench) finish(r *report, o options) error {
	var err error
	if o.json != "" {
		err = r.write(o.json)
	}
	if o.keep || !r.ok() {
		fmt.Fprintln(os.Stderr, "data, logs and histories are in", filepath.Clean(b.dir))
		return err
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}
