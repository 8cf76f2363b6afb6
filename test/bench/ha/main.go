package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
)

var program = runner.Program{
	Name: "bench-ha", Example: "creates,takeover",
	New: func(r *runner.Run) runner.Benchmark { return &bench{Run: r} },
}

func main() { runner.Main(program) }

// limit bounds a run without the time that building takes.
const limit = 20 * time.Minute

// bench is one run.
type bench struct {
	*runner.Run
	etcd string // path of an etcd server
}

// Flags adds the path of the etcd server.
func (b *bench) Flags(flags *flag.FlagSet) {
	flags.StringVar(&b.etcd, "etcd", "", "etcd server to run, see scripts/need.sh")
}

// Rows returns the table.
func (b *bench) Rows() ([]row.Row, error) {
	if b.etcd == "" {
		return nil, errors.New("-etcd is missing: it names an etcd server")
	}
	return rows, nil
}

// Head describes the clouds.
func (b *bench) Head() string {
	return fmt.Sprintf("3 etcd members, 3 controllers, %d simulated nodes whose VMs boot in 0 ms", nodes)
}

// Measure measures every part.
func (b *bench) Measure(ctx context.Context) error {
	for _, name := range []string{rowS3Pull, rowMirror} {
		b.Figure(name).Skipped = true
	}
	if err := b.Build(ctx); err != nil {
		return err
	}
	ctx, cancel := runner.Limit(ctx, limit)
	defer cancel()
	b.MeasureParts(ctx, runner.Part{
		Rows: []string{rowCreates, rowStart, rowTakeover, rowMember}, Partial: true, Do: b.replicated,
	})
	return nil
}
