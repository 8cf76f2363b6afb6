package cliproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/internal/sanitize"
)

// Why a command has no exit code. A canceled context is reported as context.Canceled.
var (
	ErrNotStarted = errors.New("the program could not be started")
	ErrTimedOut   = errors.New("the program did not end in time and was killed")
)

const maxLineBytes = 300 // of the line of stderr in an error

// Error reports a command that failed.
type Error struct {
	Program    string // base name
	Subcommand string // the first argument; "" without arguments
	Code       int    // exit code; -1 when the program has none: see Unwrap
	Stderr     string // kept part of the standard error
	cause      error
}

// failure returns the error of a command without an exit code.
func (c Command) failure(cause error) *Error {
	e := &Error{Program: filepath.Base(c.Path), Code: -1, cause: cause}
	if len(c.Args) > 0 {
		e.Subcommand = c.Args[0]
	}
	return e
}

// outcome returns the error of a command that has ended or was not started. The code of a program that ended normally
// counts, even when ctx was done at the same time.
func (c Command) outcome(ctx context.Context, state *os.ProcessState, stderr *tail, err error) error {
	if err == nil || state != nil && state.Success() {
		return nil
	}
	e := c.failure(err)
	e.Stderr = string(stderr.bytes())
	switch {
	case state != nil && state.Exited():
		e.Code = state.ExitCode()
	case ctx.Err() != nil:
		e.cause = interruption(ctx)
	case state == nil:
		e.cause = errors.Join(ErrNotStarted, err)
	}
	return e
}

// interruption returns why a command was ended: ErrTimedOut, a failed input, or what ended the caller's context.
func interruption(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return errors.Join(ErrTimedOut, cause)
	}
	return cause
}

// Unwrap returns an error that is ErrNotStarted, ErrTimedOut, what ended the context, or an *exec.ExitError.
func (e *Error) Unwrap() error { return e.cause }

func (e *Error) Error() string {
	name := strings.TrimSpace(e.Program + " " + e.Subcommand)
	line := e.Line()
	switch {
	case e.Code < 0 && line == "":
		return fmt.Sprintf("%s: %v", name, e.cause)
	case e.Code < 0:
		return fmt.Sprintf("%s: %v: %s", name, e.cause, line)
	case line == "":
		return fmt.Sprintf("%s: exit code %d without an error message", name, e.Code)
	}
	return fmt.Sprintf("%s: exit code %d: %s", name, e.Code, line)
}

// Line returns the first line of the standard error that is not empty, without a leading "Error: " and safe to print.
func (e *Error) Line() string {
	for line := range strings.Lines(e.Stderr) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "Error: ")
		if line == "" {
			continue
		}
		if len(line) > maxLineBytes {
			line = strings.ToValidUTF8(line[:maxLineBytes], "")
		}
		return sanitize.EscapeText(line)
	}
	return ""
}
