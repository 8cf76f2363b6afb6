package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Confirmation is the flag --yes of a destructive command; it skips the
// confirmation.
type Confirmation bool

// Add puts the flag on a command.
func (c *Confirmation) Add(cmd *cobra.Command) {
	cmd.Flags().BoolVarP((*bool)(c), "yes", "y", false, "skip the confirmation (required without a terminal)")
}

// Ask asks for confirmation of a change that cannot be undone. Without a terminal it requires --yes.
func (c Confirmation) Ask(ctx context.Context, s Streams, format string, args ...any) error {
	switch {
	case bool(c):
		return nil
	case Columns(s.In) == 0:
		return Usage(errors.New(
			"confirmation required, but standard input is not a terminal: pass --yes to confirm; nothing was done"))
	}
	_, _ = fmt.Fprint(s.Err, EscapeName(fmt.Sprintf(format, args...)), " [y/N] ")
	said, err := ReadOrEnd(ctx, func() (said string, _ error) {
		_, _ = fmt.Fscanln(s.In, &said) // an empty line is a no
		return strings.ToLower(said), nil
	})
	switch {
	case err != nil:
		_, _ = fmt.Fprintln(s.Err)
		return Exit(ExitInterrupted, errors.New("interrupted: nothing was done"))
	case said != "y" && said != "yes":
		return errors.New("not confirmed: nothing was done")
	}
	return nil
}

// ReadOrEnd reads input that may take any time, or returns when the context ends.
func ReadOrEnd[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1) // a result after the end is discarded
	go func() {
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
