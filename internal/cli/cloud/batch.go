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

// maxConcurrentCalls limits the concurrent calls of a command on many items.
const maxConcurrentCalls = 8

// itemResult is the result for one of several items.
type itemResult struct {
	ID        string `json:"id"`
	Outcome   string `json:"result"` // the action that was done, or failed
	ErrorText string `json:"why,omitempty"`

	err error
}

// runOnEach does the same to several items and returns a result for each, in their order.
func runOnEach(
	ctx context.Context, ids []string, done string, do func(ctx context.Context, id string) error,
) []itemResult {
	out := make([]itemResult, len(ids))
	for i, id := range ids {
		out[i].ID = id
	}
	runOnSucceeded(ctx, out, done, do)
	return out
}

// runOnSucceeded runs another operation on those of several items that have not failed.
func runOnSucceeded(ctx context.Context, all []itemResult, done string, do func(ctx context.Context, id string) error) {
	var wg sync.WaitGroup
	turn := make(chan struct{}, maxConcurrentCalls)
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
				r.Outcome = done
			case ctx.Err() == nil || r.Outcome == "":
				r.Outcome, r.ErrorText, r.err = "failed", err.Error(), err
			}
		})
	}
	wg.Wait()
}

// printResults shows results, and returns the error of a command some of whose items failed.
func (a *Command) printResults(results []itemResult) error {
	err := resultsError(results)
	if len(results) == 1 && err != nil {
		return err // it needs no summary
	}
	shown := a.Output.Write(a.Out, results, func(g *cli.Grid) {
		for _, r := range results {
			if r.ErrorText == "" {
				g.Row(r.ID, r.Outcome)
			} else {
				g.Row(r.ID, r.Outcome, r.ErrorText)
			}
		}
	})
	if shown != nil {
		return shown
	}
	return err
}

// resultsError returns the error of a command on several items.
func resultsError(results []itemResult) error {
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

// interruptedWaitError returns the error of interrupted waits, with the reason of the first.
func interruptedWaitError(ctx context.Context, results []itemResult) error {
	for _, r := range results {
		if r.err != nil && errors.Is(r.err, context.Cause(ctx)) {
			return r.err
		}
	}
	return context.Cause(ctx)
}

// printIDs prints the IDs that a call returned, one per line.
func (a *Command) printIDs(got response[[]string]) error {
	if a.Output == cli.JSON || a.Output == cli.YAML {
		return a.Output.WriteDocument(a.Out, got.raw)
	}
	for _, id := range got.value {
		if _, err := fmt.Fprintln(a.Out, cli.EscapeName(id)); err != nil {
			return err
		}
	}
	return nil
}

// maxLogRowBytes bounds a row of a log, in bytes.
const maxLogRowBytes = 1 << 20

// eachRow calls do with every row of a text.
func eachRow(from io.Reader, do func(row string) error) error {
	rows := bufio.NewScanner(from)
	rows.Buffer(make([]byte, 64<<10), maxLogRowBytes)
	for rows.Scan() {
		if err := do(rows.Text()); err != nil {
			return err
		}
	}
	return rows.Err()
}
