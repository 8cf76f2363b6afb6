package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/internal/loadgen"
	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/rig"
)

// warmUp is how long both sides work before the first round.
const warmUp = 300 * time.Millisecond

// creates compares the rate of creates with that of the bare handler. The two take
// turns, so that what else the machine does meets both.
func (b *bench) creates(ctx context.Context, s *stage) (err error) {
	handler, client, err := b.startBare(ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() {
		client.Close()
		if ended := handler.End(); err == nil {
			err = ended
		}
	}()
	c := comparison{stage: s, bare: client}
	if _, _, err := c.round(ctx, callers, warmUp); err != nil {
		return err
	}
	for _, level := range []struct {
		row       string
		callers   int
		reference float64 // creates/s of the bare handler on the machine that the targets were set on
	}{{rowCreate1, 1, 1990}, {rowCreate8, 8, 6050}, {rowCreate64, callers, 14400}} {
		if !b.Wants(level.row) {
			continue
		}
		var ours, bares []float64
		for range rounds {
			bare, own, err := c.round(ctx, level.callers, window)
			if err != nil {
				return err
			}
			ours, bares = append(ours, own), append(bares, bare)
			b.Add(level.row, own/bare)
		}
		b.Note(level.row, "%.0f/s, the bare handler %.0f/s, %.2f x its rate where the targets come from",
			row.Median(ours), row.Median(bares), row.Median(bares)/level.reference)
		b.Say("%d callers: %.0f creates/s, the bare handler %.0f/s", level.callers, row.Median(ours), row.Median(bares))
	}
	return nil
}

// startBare starts the bare handler as a separate process.
func (b *bench) startBare(ctx context.Context, dir string) (*rig.Process, *loadgen.Client, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("start the bare handler: %w", err)
	}
	address, err := rig.FreeAddr(ctx)
	if err != nil {
		return nil, nil, err
	}
	p := rig.NewProcess(dir, "bare", self, childBare, address, filepath.Join(dir, "bare-store"))
	if err := p.Start(); err != nil {
		return nil, nil, err
	}
	return p, loadgen.NewClient("http://"+address, callers), rig.Ready(ctx, p, "http://"+address)
}

// comparison is the two sides whose creates are compared.
type comparison struct {
	*stage
	bare *loadgen.Client
}

// round measures both sides, one after the other, and removes what they made.
func (c comparison) round(ctx context.Context, callers int, over time.Duration) (bare, ours float64, err error) {
	body := c.order(1)
	bare, _, err = rate(ctx, callers, over,
		func(ctx context.Context) ([]string, error) { return createWith(ctx, c.bare, body) })
	if err != nil {
		return 0, 0, fmt.Errorf("bare handler: %w", err)
	}
	if _, err := c.bare.Call(ctx, http.MethodDelete, loadgen.InstancesPath, nil); err != nil {
		return 0, 0, err
	}
	ours, ids, err := rate(ctx, callers, over,
		func(ctx context.Context) ([]string, error) { return createWith(ctx, c.client, body) })
	if err != nil {
		return 0, 0, err
	}
	if err := c.terminate(ctx, ids); err != nil {
		return 0, 0, err
	}
	return bare, ours, c.empty(ctx)
}

// terminate ends instances.
func (s *stage) terminate(ctx context.Context, ids []string) error {
	return spread(ctx, callers, len(ids),
		func(ctx context.Context, i int) error { return s.client.Terminate(ctx, ids[i]) })
}

// empty waits until all instances have ended.
func (s *stage) empty(ctx context.Context) error {
	return s.await(ctx, workLimit, "the instances to go", func() (bool, error) {
		items, err := s.client.List(ctx)
		return len(items) == 0, err
	})
}
