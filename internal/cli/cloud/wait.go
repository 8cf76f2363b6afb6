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

// addLimit adds the flag of a command that waits in any case.
func (w *waitOptions) addLimit(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&w.limit, "timeout", 0, "give up waiting after this time, for example 10m (default: never)")
	w.check(cmd, func() error {
		if w.limit < 0 || w.limit == 0 && cmd.Flags().Changed("timeout") {
			return fmt.Errorf("--timeout must be longer than 0: leave it out to wait for any time")
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

// during waits as long as the user wants to. When that ends first, the error names what continues
// without the command.
func (w *waitOptions) during(ctx context.Context, goesOn string, wait func(context.Context) error) error {
	ctx, cancel := within(ctx, w.limit)
	defer cancel()
	err := wait(ctx)
	if err != nil && ctx.Err() != nil && !cli.WithExitCode(err) {
		return cutShort(ctx, err, goesOn)
	}
	return err
}

// within returns a context that ends after a limit that the user chose; 0 is none.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, limit, timeoutError{limit})
}

// timeoutError is the end of a wait that took too long.
type timeoutError struct{ limit time.Duration }

func (e timeoutError) Error() string {
	return fmt.Sprintf("it took longer than %s (--timeout)", e.limit)
}

// cutShort returns the error of an operation that --timeout or the user has ended, with what
// continues without it.
func cutShort(ctx context.Context, err error, goesOn string) error {
	cause := context.Cause(ctx)
	code, text := cli.ExitInterrupted, "interrupted"
	if late, ok := errors.AsType[timeoutError](cause); ok {
		if code, text = cli.ExitTimeout, late.Error(); errors.Is(err, cause) && err.Error() != cause.Error() {
			text = err.Error() // it contains the cause
		}
	}
	if goesOn != "" {
		text += ": " + goesOn
	}
	return cli.Exit(code, errors.New(text))
}
