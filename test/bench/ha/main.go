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
	etcd    string // path of an etcd server
	gateway string // path of an S3 server
}

// Flags adds the path of the etcd server.
func (b *bench) Flags(flags *flag.FlagSet) {
	flags.StringVar(&b.etcd, "etcd", "", "etcd server to run, see scripts/need.sh")
	flags.StringVar(&b.gateway, "versitygw", "", "S3 server to run, see scripts/need.sh")
}

// Rows returns the table.
func (b *bench) Rows() ([]row.Row, error) {
	if b.etcd == "" || b.gateway == "" {
		return nil, errors.New("-etcd or -versitygw is missing: they name an etcd server and an S3 server")
	}
	return rows, nil
}

// Head describes the clouds.
func (b *bench) Head() string {
	return fmt.Sprintf("3 etcd members, 3 controllers, %d simulated nodes whose VMs boot in 0 ms", nodes)
}

// Measure measures every part.
func (b *bench) Measure(ctx context.Context) error {
	if err := b.Build(ctx); err != nil {
		return err
	}
	ctx, cancel := runner.Limit(ctx, limit)
	defer cancel()
	b.MeasureParts(ctx, runner.Part{
		Rows: []string{rowCreates, rowStart, rowTakeover, rowMember}, Partial: true, Do: b.replicated,
	}, runner.Part{Rows: []string{rowS3Pull, rowCommit, rowMirror}, Partial: true, Do: b.registries})
	return nil
}
