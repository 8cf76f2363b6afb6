package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// signalError is the cause of a context that a signal ended.
type signalError struct{ syscall.Signal }

func (e signalError) Error() string {
	if e.Signal == syscall.SIGINT {
		return "interrupted"
	}
	return "terminated"
}

// Main is a program's main function: it runs what a program does with the arguments and
// streams of this process until a signal ends it, and ends the process.
func Main(run func(ctx context.Context, args []string, streams Streams) int) {
	ctx, stop := Signals(context.Background())
	code := run(ctx, os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}

// Signals returns a context that SIGINT and SIGTERM end, and which tells Run the signal. A SIGINT
// after the first signal has its usual effect: it ends code that ignores the context, such as a
// write that no process reads. stop restores the usual effect of both.
func Signals(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	got := make(chan os.Signal, 1)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-got:
			number, _ := s.(syscall.Signal)
			signal.Reset(os.Interrupt)
			cancel(signalError{number})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(got)
		cancel(nil)
	}
}

// signalExit reports whether a command failed because a signal ended its context, and returns the
// exit code that shells use for that signal.
func signalExit(ctx context.Context, err error) (code int, cause error) {
	by, ok := errors.AsType[signalError](context.Cause(ctx))
	if !ok || !errors.Is(err, context.Canceled) && !errors.Is(err, by) && CodeOf(err) != ExitInterrupted {
		return 0, nil
	}
	return ExitSignal + int(by.Signal), by
}
