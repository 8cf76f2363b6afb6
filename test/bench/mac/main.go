package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
)

var program = runner.Program{
	Name: "bench-mac", Example: "exec,forward",
	New: func(r *runner.Run) runner.Benchmark { return &bench{Run: r} },
	Children: map[string]runner.Child{
		childServer: func(ctx context.Context, args []string, _ io.Writer) error { return serveStreams(ctx, args) },
	},
}

func main() { runner.Main(program) }

// bench is one run.
type bench struct {
	*runner.Run
	rounds int
	mac    *fakeMac
}

// Flags adds the number of rounds.
func (b *bench) Flags(flags *flag.FlagSet) {
	flags.IntVar(&b.rounds, "rounds", minStarts,
		"times that starts are measured; fewer than 15 measure nothing that counts")
}

const maxRounds = 200 // keeps a run below an hour

// Rows returns the table.
func (b *bench) Rows() ([]row.Row, error) {
	if b.rounds < 1 || b.rounds > maxRounds {
		return nil, fmt.Errorf("invalid -rounds %d: want 1 to %d", b.rounds, maxRounds)
	}
	return rows, nil
}

// Head describes what was measured.
func (b *bench) Head() string {
	return fmt.Sprintf("an imitation of tart on XFS in a file; %d rounds", b.rounds)
}

// limit bounds a run without the time that building takes.
func (b *bench) limit() time.Duration { return 20*time.Minute + time.Duration(b.rounds)*30*time.Second }

// Measure measures every part on one file system. The error is of what was left behind.
func (b *bench) Measure(ctx context.Context) (err error) {
	if err := b.build(ctx); err != nil {
		return err
	}
	ctx, cancel := runner.Limit(ctx, b.limit())
	defer cancel()
	v, err := mountVolume(ctx, b.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.close(ctx)) }()
	if b.mac, err = newFakeMac(ctx, v.dir); err != nil {
		return err
	}
	b.Say("mounted the file system and made the images")

	b.MeasureParts(ctx,
		runner.Part{Rows: []string{rowStart, rowSize, rowDelta}, Do: b.measureCloud, Partial: true},
		runner.Part{Rows: []string{rowExec, rowForward}, Do: b.measureGuest, Partial: true},
	)
	return nil
}

// build builds the programs and puts the imitation of tart first in PATH.
func (b *bench) build(ctx context.Context) error {
	if err := b.Build(ctx); err != nil {
		return err
	}
	dir := filepath.Join(b.Dir, "tart")
	err := b.Programs.BuildModule(ctx, filepath.Join("test", "fakes", "tart"), filepath.Join(dir, "tart"))
	if err != nil {
		return err
	}
	return os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
}
