package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/netns"
	"github.com/buildyard/buildyard/test/rig"
)

var program = runner.Program{
	Name: "bench-distribution", Example: "traced,untraced",
	New: func(r *runner.Run) runner.Benchmark { return &bench{Run: r} },
}

func main() {
	if netns.Inside() || slices.ContainsFunc(os.Args[1:], func(a string) bool { return a == "-h" || a == "-help" }) {
		runner.Main(program)
		return
	}
	rig.Main(program.Name, netns.RunInside)
}

// Bounds of a run.
const (
	limit      = 2 * time.Hour
	diskBytes  = 20 << 30  // that a run needs
	shownBytes = 300 << 30 // of the file system of the cloud, a sparse file: registry and nodes book space for 60 GB
)

// bench is one run.
type bench struct {
	*runner.Run
	starts   int    // of each kind, and distributions
	machines int    // that were added to the network
	disk     string // directory of the cloud, on a file system that a template of 60 GB fits into
	guest    string // disk of the guest
	key      string // file of the key of its root

	local  []time.Duration // warm starts
	remote []time.Duration // starts without template and trace, at the full rate
	slow   []time.Duration // starts with a trace, at the slow rate
	set    []int64         // stored bytes of the frames that each boot has read

	distributions []round // to one node and to many
	claims        []claim
}

// report is the report in JSON.
type report struct {
	*row.Report
	Distributions []round `json:"distributions,omitempty"`
	Claims        []claim `json:"claims,omitempty"`
}

// JSON returns the report.
func (b *bench) JSON() any { return report{b.Report, b.distributions, b.claims} }

// Flags adds the number of starts.
func (b *bench) Flags(flags *flag.FlagSet) {
	flags.IntVar(&b.starts, "starts", 3, "starts of each kind, and distributions")
}

// Rows returns the table.
func (b *bench) Rows() ([]row.Row, error) {
	if b.starts < 1 || b.starts > 20 {
		return nil, fmt.Errorf("invalid -starts %d: want 1 to 20", b.starts)
	}
	return rows(b.starts), nil
}

// Head describes the run.
func (b *bench) Head() string {
	return fmt.Sprintf(
		"links of %.0f and %.0f Mbit/s, %d starts of each kind", fullRate*8/1e6, slowRate*8/1e6, b.starts)
}

// enough refuses a directory without the space that a run needs.
func enough(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * int64(st.Bsize); free < diskBytes {
		return fmt.Errorf("%s has %d GiB free, a run needs %d; set TMPDIR to another place", filepath.Dir(dir),
			free>>30, diskBytes>>30)
	}
	return nil
}

// Measure measures the parts, each on a separate cloud.
func (b *bench) Measure(ctx context.Context) (err error) {
	if err := enough(b.Dir); err != nil {
		return err
	}
	if err := netns.SetUp(ctx); err != nil {
		return err
	}
	if err := b.Build(ctx); err != nil {
		return err
	}
	unmount, err := b.mount(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmount()) }()
	ctx, cancel := runner.Limit(ctx, limit)
	defer cancel()
	b.MeasureParts(ctx,
		runner.Part{Rows: startRows, Do: b.onDebian, Partial: true},
		runner.Part{Rows: manyRows, Do: b.many, Partial: true},
		runner.Part{Rows: poolRows, Do: b.pool, Partial: true},
	)
	return nil
}

// onDebian measures the starts of the guest, on one cloud.
func (b *bench) onDebian(ctx context.Context) (err error) {
	b.guest = filepath.Join(b.Dir, "debian.raw")
	script := filepath.Join(b.Programs.Root(), "test", "bench", "distribution", "guest.sh")
	if _, err := rig.Output(ctx, "", "bash", script, b.guest); err != nil {
		return err
	}
	if b.guest, err = filepath.EvalSymlinks(b.guest); err != nil {
		return err
	}
	b.key = b.guest + ".key"
	b.Say("built the guest")
	s, err := openStage(ctx, b, "starts", nil)
	if s != nil {
		defer func() { err = errors.Join(err, s.close(ctx)) }()
	}
	if err != nil {
		return err
	}
	if err := s.pushDebian(ctx); err != nil {
		return err
	}
	if err := s.join(ctx, lazily("a")); err != nil {
		return err
	}
	part := func(do func(context.Context, *stage) error, rows ...string) runner.Part {
		return runner.Part{Rows: rows, Do: func(ctx context.Context) error { return do(ctx, s) }}
	}
	// Two senders agree on a trace: as long as only the first node has started the guest, there is none.
	b.MeasureParts(ctx,
		part(b.untraced, rowUntraced, rowLarge),
		part(b.kills, rowKill),
		part(b.fill, rowFill, rowDisk),
		part(b.warm, rowTraced, rowUntraced, rowSlow, rowDisk),
		part(b.large, rowLarge),
		part(b.agree, rowTraced, rowSlow, rowFetched),
		part(b.traced, rowTraced, rowFetched),
		part(b.slowly, rowSlow),
	)
	b.compare()
	return nil
}

// mount makes the file system of the cloud.
func (b *bench) mount(ctx context.Context) (unmount func() error, err error) {
	image, top, err := rig.MakeXFS(ctx, b.Dir, shownBytes)
	if err != nil {
		return nil, err
	}
	b.disk = top
	if _, err := rig.Output(ctx, "", "mount", "-o", "loop", image, top); err != nil {
		return nil, err
	}
	return func() error {
		_, err := rig.Output(context.WithoutCancel(ctx), "", "umount", "-l", top)
		return err
	}, nil
}

// compare computes the ratios.
func (b *bench) compare() {
	if len(b.local) == 0 {
		return
	}
	local := median(b.local)
	for _, took := range b.remote {
		b.Add(rowUntraced, took.Seconds()/local.Seconds())
	}
	for i, took := range b.slow {
		least := max(local.Seconds(), float64(b.set[i])/slowRate)
		b.Add(rowSlow, took.Seconds()/least)
	}
}

func median(list []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}
