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
	wait    bool
	timeout time.Duration
}

// addWaitFlags adds the flags of a command that waits on request.
func (w *waitOptions) addWaitFlags(cmd *cobra.Command, what string) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "wait "+what)
	w.addTimeoutFlag(cmd)
	w.addCheck(cmd, func() error {
		if !w.wait && cmd.Flags().Changed("timeout") {
			return errors.New("--timeout requires --wait")
		}
		return nil
	})
}

// addTimeoutFlag adds the flag of a command that always waits.
func (w *waitOptions) addTimeoutFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0, "maximum wait, for example 10m (default: unlimited)")
	w.addCheck(cmd, func() error {
		if w.timeout < 0 || w.timeout == 0 && cmd.Flags().Changed("timeout") {
			return fmt.Errorf("invalid --timeout: want more than 0")
		}
		return nil
	})
}

// addCheck adds a check that runs before a command.
func (w *waitOptions) addCheck(cmd *cobra.Command, right func() error) {
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

// waitWithTimeout waits up to --timeout. When the wait ends early, the error names what continues on the
// server.
func (w *waitOptions) waitWithTimeout(ctx context.Context, continues string, wait func(context.Context) error) error {
	ctx, cancel := withTimeout(ctx, w.timeout)
	defer cancel()
	err := wait(ctx)
	if err != nil && ctx.Err() != nil && !cli.HasExitCode(err) {
		return interruptedError(ctx, err, continues)
	}
	return err
}

// withTimeout returns a context that ends after a limit; 0 is none.
func withTimeout(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, limit, timeoutError{limit})
}

// timeoutError is the error of a wait that timed out.
type timeoutError struct{ timeout time.Duration }

func (e timeoutError) Error() string {
	return fmt.Sprintf("timed out after %s (--timeout)", e.timeout)
}

// interruptedError returns the error of an operation that --timeout or a signal ended, with what continues
// on the server.
func interruptedError(ctx context.Context, err error, continues string) error {
	cause := context.Cause(ctx)
	code, text := cli.ExitInterrupted, "interrupted"
	if late, ok := errors.AsType[timeoutError](cause); ok {
		if code, text = cli.ExitTimeout, late.Error(); errors.Is(err, cause) && err.Error() != cause.Error() {
			text = err.Error() // includes the cause
		}
	}
	if continues != "" {
		text += ": " + continues
	}
	return cli.Exit(code, errors.New(text))
}
