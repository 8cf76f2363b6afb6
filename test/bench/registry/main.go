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
	"github.com/buildyard/buildyard/test/bench/runner"
)

var program = runner.Program{
	Name: "bench-registry", Example: "pull,push",
	New: func(r *runner.Run) runner.Benchmark { return &bench{Run: r} },
	Children: map[string]runner.Child{
		childFiles:    filesChild,
		childTransfer: func(ctx context.Context, _ []string, out io.Writer) error { return work(ctx, out) },
	},
}

// The processes that a run starts: the bare file server, and one for each transfer.
const (
	childFiles    = "files"
	childTransfer = "transfer"
)

// filesChild serves a directory at an address.
func filesChild(ctx context.Context, args []string, _ io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("%s: want an address and a directory", childFiles)
	}
	return serveFiles(ctx, args[0], args[1])
}

func main() { runner.Main(program) }

// Bounds of a run.
const (
	limit     = 90 * time.Minute
	diskBytes = 18 << 30 // that a run needs at most at a time, and some to spare
)

// bench is one run.
type bench struct {
	*runner.Run
	pairs int
	disks disks
	peer  *peer // nil when its rows are not measured
}

// Flags adds the number of pairs.
func (b *bench) Flags(flags *flag.FlagSet) {
	flags.IntVar(&b.pairs, "pairs", 9, "times that everything is measured")
}

// Rows returns the table.
func (b *bench) Rows() ([]row.Row, error) {
	if b.pairs < 1 {
		return nil, fmt.Errorf("invalid -pairs %d: want 1 or more", b.pairs)
	}
	return rows(b.pairs), nil
}

// Head describes the disk.
func (b *bench) Head() string {
	return fmt.Sprintf("a disk of %d MiB of which %d are data, %d pairs", size>>20, b.disks.base.data>>20, b.pairs)
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

// Measure measures every part.
func (b *bench) Measure(ctx context.Context) error {
	if err := enough(b.Dir); err != nil {
		return err
	}
	ctx, cancel := runner.Limit(ctx, limit)
	defer cancel()
	if err := b.Build(ctx); err != nil {
		return err
	}
	b.MeasureParts(ctx,
		runner.Part{Rows: []string{rowClientMemory, rowRegistryMemory}, Do: b.sparse},
		runner.Part{Rows: []string{rowList}, Do: b.list},
		runner.Part{Rows: inRounds, Do: b.rounds, Partial: true},
	)
	return nil
}

// rounds makes the disks and measures every pair.
func (b *bench) rounds(ctx context.Context) (err error) {
	if b.disks, err = makeDisks(ctx, b.Dir); err != nil {
		return err
	}
	b.Say("made the disks: %d MB of data; next tags change %d MB scattered, %d MB clustered", b.disks.base.data>>20,
		b.disks.scattered.changed>>20, b.disks.clustered.changed>>20)
	if b.Wants(rowPeerPull, rowPeerBytes) {
		if err := b.startPeer(ctx); err != nil {
			b.Fail(ctx, err, rowPeerPull, rowPeerBytes)
		}
		defer func() { err = errors.Join(err, b.peer.close()) }()
	}
	for n := range b.pairs {
		if err := b.round(ctx, n); err != nil {
			return fmt.Errorf("pair %d: %w", n+1, err)
		}
		b.Say("pair %d of %d", n+1, b.pairs)
	}
	return nil
}
