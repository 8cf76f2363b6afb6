package cloud

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/buildyard/buildyard/internal/cli"
)

// atOnce limits the concurrent calls of a command on many items.
const atOnce = 8

// result is the result for one of several items.
type result struct {
	ID     string `json:"id"`
	Result string `json:"result"` // the action that was done, or failed
	Why    string `json:"why,omitempty"`

	err error
}

// each does the same to several items and returns a result for each, in their order.
func each(ctx context.Context, ids []string, done string, do func(ctx context.Context, id string) error) []result {
	out := make([]result, len(ids))
	for i, id := range ids {
		out[i].ID = id
	}
	further(ctx, out, done, do)
	return out
}

// further runs another operation on those of several items that have not failed.
func further(ctx context.Context, all []result, done string, do func(ctx context.Context, id string) error) {
	var wg sync.WaitGroup
	turn := make(chan struct{}, atOnce)
	for i := range all {
		if all[i].err != nil {
			continue
		}
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			r := &all[i]
			switch err := do(ctx, r.ID); {
			case err == nil:
				r.Result = done
			case ctx.Err() == nil || r.Result == "":
				r.Result, r.Why, r.err = "failed", err.Error(), err
			}
		})
	}
	wg.Wait()
}

// outcome shows results, and returns the error of a command some of whose items failed.
func (a *Command) outcome(results []result) error {
	err := verdict(results)
	if len(results) == 1 && err != nil {
		return err // it needs no summary
	}
	shown := a.Output.Write(a.Out, results, func(g *cli.Grid) {
		for _, r := range results {
			if r.Why == "" {
				g.Row(r.ID, r.Result)
			} else {
				g.Row(r.ID, r.Result, r.Why)
			}
		}
	})
	if shown != nil {
		return shown
	}
	return err
}

// verdict returns the error of a command on several items.
func verdict(results []result) error {
	var failed []error
	for _, r := range results {
		if r.err != nil {
			failed = append(failed, r.err)
		}
	}
	switch {
	case len(failed) == 0:
		return nil
	case len(results) == 1:
		return failed[0]
	case len(failed) == len(results):
		return fmt.Errorf("all %d failed; first error: %w", len(failed), failed[0])
	}
	return cli.Exit(cli.ExitPartly,
		fmt.Errorf("%d of %d failed; first error: %w", len(failed), len(results), failed[0]))
}

// unfinished returns the error of interrupted waits, with the reason of the first.
func unfinished(ctx context.Context, results []result) error {
	for _, r := range results {
		if r.err != nil && errors.Is(r.err, context.Cause(ctx)) {
			return r.err
		}
	}
	return context.Cause(ctx)
}

// ids prints the IDs that a call returned, one per line.
func (a *Command) ids(got answer[[]string]) error {
	if a.Output == cli.JSON || a.Output == cli.YAML {
		return a.Output.Document(a.Out, got.raw)
	}
	for _, id := range got.value {
		if _, err := fmt.Fprintln(a.Out, cli.Plain(id)); err != nil {
			return err
		}
	}
	return nil
}

// maxRow bounds a row of a log, in bytes.
const maxRow = 1 << 20

// rowsOf calls do with every row of a text.
func rowsOf(from io.Reader, do func(row string) error) error {
	rows := bufio.NewScanner(from)
	rows.Buffer(make([]byte, 64<<10), maxRow)
	for rows.Scan() {
		if err := do(rows.Text()); err != nil {
			return err
		}
	}
	return rows.Err()
}
