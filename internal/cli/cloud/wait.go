package cloud

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
)

// waitOptions are the options of a command that may wait.
type waitOptions struct {
	wait  bool
	limit time.Duration
}

// addWait adds the flags of a command that waits on request.
func (w *waitOptions) addWait(cmd *cobra.Command, what string) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "wait "+what)
	w.addLimit(cmd)
	w.check(cmd, func() error {
		if !w.wait && cmd.Flags().Changed("timeout") {
			return errors.New("--timeout requires --wait")
		}
		return nil
	})
}

// addLimit adds the flag of a command that always waits.
func (w *waitOptions) addLimit(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&w.limit, "timeout", 0, "maximum wait, for example 10m (default: unlimited)")
	w.check(cmd, func() error {
		if w.limit < 0 || w.limit == 0 && cmd.Flags().Changed("timeout") {
			return fmt.Errorf("invalid --timeout: want more than 0")
		}
		return nil
	})
}

// check adds a check that runs before a command.
func (w *waitOptions) check(cmd *cobra.Command, right func() error) {
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if before != nil {
			if err := before(cmd, args); err != nil {
				return err
			}
		}
		return right()
	}
}

// during waits up to --timeout. When the wait ends early, the error names what continues on the
// server.
func (w *waitOptions) during(ctx context.Context, goesOn string, wait func(context.Context) error) error {
	ctx, cancel := within(ctx, w.limit)
	defer cancel()
	err := wait(ctx)
	if err != nil && ctx.Err() != nil && !cli.WithExitCode(err) {
		return cutShort(ctx, err, goesOn)
	}
	return err
}

// within returns a context that ends after a limit; 0 is none.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, limit, timeoutError{limit})
}

// timeoutError is the error of a wait that timed out.
type timeoutError struct{ limit time.Duration }

func (e timeoutError) Error() string {
	return fmt.Sprintf("timed out after %s (--timeout)", e.limit)
}

// cutShort returns the error of an operation that --timeout or a signal ended, with what continues
// on the server.
func cutShort(ctx context.Context, err error, goesOn string) error {
	cause := context.Cause(ctx)
	code, text := cli.ExitInterrupted, "interrupted"
	if late, ok := errors.AsType[timeoutError](cause); ok {
		if code, text = cli.ExitTimeout, late.Error(); errors.Is(err, cause) && err.Error() != cause.Error() {
			text = err.Error() // includes the cause
		}
	}
	if goesOn != "" {
		text += ": " + goesOn
	}
	return cli.Exit(code, errors.New(text))
}
