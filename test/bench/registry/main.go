package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("bench-registry", run) }

// options are the command line.
type options struct {
	only  map[string]bool // rows to measure
	pairs int
	json  string
	check bool
	keep  bool
	files string // address: be the bare file server there
	dir   string // that it serves
	work  bool   // run the order on standard input
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("bench-registry", flag.ContinueOnError)
	fs.SetOutput(out)
	only := fs.String("only", "", "rows to measure, such as pull,push (default: all)")
	fs.IntVar(&o.pairs, "pairs", 9, "times that everything is measured")
	fs.StringVar(&o.json, "json", "", "file for the report in JSON")
	fs.BoolVar(&o.check, "check", false, "fail when a row misses its target")
	fs.BoolVar(&o.keep, "keep", false, "keep data and logs")
	fs.StringVar(&o.files, "files", "", "be the bare file server at this address; the benchmark starts it by itself")
	fs.StringVar(&o.dir, "dir", "", "directory that the bare file server serves")
	fs.BoolVar(&o.work, "work", false, "do one transfer; the benchmark starts it by itself")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 || o.pairs < 1 || (o.files == "") != (o.dir == "") {
		return o, errors.New("usage: bench-registry [-pairs N] [-only ROWS] [-check] [-json FILE] [-keep]")
	}
	o.only, err = row.Only(rows(o.pairs), *only)
	return o, err
}

// Bounds of a run.
const (
	limit     = 90 * time.Minute // without the time that building takes
	diskBytes = 18 << 30         // that a run needs at most at a time, and some to spare
)

// bench is one run.
type bench struct {
	options
	*row.Report
	dir      string // of everything that the run writes
	programs rig.Programs
	out      io.Writer
	disks    disks
	peer     *peer // nil when its rows are not measured
}

// run measures and reports whether the run ended well.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	switch {
	case err != nil:
		return false, err
	case o.files != "":
		err := serveFiles(ctx, o.files, o.dir)
		return err == nil, err
	case o.work:
		err := work(ctx, out)
		return err == nil, err
	}
	dir, done, err := rig.WorkDir("bench", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	if err := enough(dir); err != nil {
		return false, err
	}
	b := &bench{options: o, Report: row.NewReport(rows(o.pairs), o.only), dir: dir, out: out}
	if err := b.measure(ctx); err != nil {
		b.say("failed: %v", err)
	}
	b.Judge()
	b.Print(out, fmt.Sprintf("a disk of %d MiB of which %d are data, %d pairs", size>>20, b.disks.base.data>>20,
		o.pairs))
	if o.json != "" {
		err = errors.Join(err, row.Write(o.json, b.Report))
	}
	return b.OK(row.Check(o.check)), err
}

// enough refuses a directory without the space that a run needs.
func enough(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * int64(st.Bsize); free < diskBytes {
		return fmt.Errorf("%s has %d GB free, a run needs %d; set TMPDIR to another place", filepath.Dir(dir), free>>30,
			diskBytes>>30)
	}
	return nil
}

// say prints one line of progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.out, "%6.1fs %s\n", time.Since(b.Began).Seconds(), fmt.Sprintf(format, args...))
}

// measure makes the disks and plays every round. Rows that could not be measured record the reason.
func (b *bench) measure(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run took longer than %s", limit))
	defer cancel()
	defer func() {
		if err != nil {
			b.spoilMissing(err)
		}
	}()
	if b.programs, err = rig.Build(ctx, b.dir); err != nil {
		return err
	}
	b.say("built the programs")
	if b.Wants(rowClientMemory, rowRegistryMemory) {
		if err := b.sparse(ctx); err != nil {
			b.Spoil(err, rowClientMemory, rowRegistryMemory)
		}
	}
	if b.Wants(rowList) {
		if err := b.list(ctx); err != nil {
			b.Spoil(err, rowList)
		}
	}
	if !b.Wants(inRounds...) {
		return nil
	}
	if b.disks, err = makeDisks(ctx, b.dir); err != nil {
		return err
	}
	b.say("made the disks: %d MB of data; next tags change %d MB scattered, %d MB clustered", b.disks.base.data>>20,
		b.disks.scattered.changed>>20, b.disks.clustered.changed>>20)
	if b.Wants(rowPeerPull, rowPeerBytes) {
		if err := b.startPeer(ctx); err != nil {
			b.Spoil(err, rowPeerPull, rowPeerBytes)
		}
		defer func() { err = errors.Join(err, b.peer.close()) }()
	}
	for n := range b.pairs {
		if err := b.round(ctx, n); err != nil {
			return fmt.Errorf("pair %d: %w", n+1, err)
		}
		b.say("pair %d of %d", n+1, b.pairs)
	}
	return nil
}

// spoilMissing returns why rows have no value, of those that have not all their samples.
func (b *bench) spoilMissing(err error) {
	for _, r := range rows(b.pairs) {
		if f := b.Figure(r.Name); !f.Skipped && len(f.Samples) < r.Need {
			b.Spoil(err, r.Name)
		}
	}
}
