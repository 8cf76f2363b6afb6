// Package cli has what the commands of all programs share: exit codes, output formats and prompts.
//
// It is not the commands themselves; those are in one sub-package per program.
//
// Invariant: a program that fails prints one line on standard error, with -o json one JSON object, and its
// exit code is one of those listed here.
package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

// The exit codes of every program.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2   // wrong flags, arguments or settings
	ExitNotFound    = 3   // the requested item does not exist
	ExitTimeout     = 4   // a wait timed out
	ExitUnreachable = 5   // the service is unreachable or unavailable
	ExitDenied      = 6   // no credentials, or they lack a permission
	ExitPartly      = 7   // some of several items failed
	ExitFound       = 8   // findings that fail a pipeline exist
	ExitSignal      = 128 // plus the number of the signal that ended it, as in shells
	ExitInterrupted = ExitSignal + 2
	ExitTerminated  = ExitSignal + 15
)

// ExitCodes is the list of them for a help text.
const ExitCodes = `Exit codes: 0 success, 1 failure, 2 usage error, 3 not found, 4 timeout, 5 service unreachable or
unavailable, 6 permission denied, 7 partial failure (some of several items failed), 130 interrupted
(Ctrl-C), 143 terminated by SIGTERM.`

// exitError is an error with an exit code.
type exitError struct {
	error
	code int
}

func (e exitError) Unwrap() error { return e.error }

// Exit wraps an error with an exit code.
func Exit(code int, err error) error { return exitError{err, code} }

// CodeOf returns the exit code of an error; ExitOK when it has none.
func CodeOf(err error) int {
	e, _ := errors.AsType[exitError](err)
	return e.code
}

// HasExitCode reports whether an error has an exit code already.
func HasExitCode(err error) bool { return CodeOf(err) != ExitOK }

// Usage marks an error as one of wrong usage.
func Usage(err error) error { return Exit(ExitUsage, err) }

// Run runs a command tree with the program's arguments, prints its error and returns the exit code. An
// error before a command's own code runs is a usage error.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	return RunAs(ctx, root, args, root.Name())
}

// RunAs is Run for a program whose errors begin with another word than its name.
func RunAs(ctx context.Context, root *cobra.Command, args []string, prefix string) int {
	root.SetArgs(args)
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetUsageFunc(printUsage)
	makeCompletionStrict(root)
	suggestNames(root, args)
	root.AddCommand(manualCommand())
	began := false
	mark := func(cmd *cobra.Command) {
		run := cmd.RunE
		if run == nil {
			return
		}
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			began = true
			return run(cmd, args)
		}
	}
	eachCommand(root, mark)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}

	f := failure{err: err, prefix: prefix, code: ExitUsage, cmd: cmd}
	signalCode, signal := signalExit(ctx, err)
	switch {
	case signal != nil:
		if f.code = signalCode; !HasExitCode(err) {
			f.err = signal // "context canceled" would not name the cause
		}
	case HasExitCode(err):
		f.code = CodeOf(err)
	case began:
		f.code = ExitFailed
	default:
		f.err = nameFlagGroup(err)
	}
	f.print(root.ErrOrStderr(), wantsJSON(cmd, args))
	return f.code
}

// makeCompletionStrict makes the command "completion" refuse a shell that it does not know, which it
// would answer with help and success.
func makeCompletionStrict(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			Family(cmd)
		}
	}
}

func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, child := range cmd.Commands() {
		eachCommand(child, do)
	}
}

// familyCommand is the annotation of commands that Family made.
const familyCommand = "buildyard_family"

// Family makes a command that only has subcommands. An unknown subcommand is a usage error; cobra
// would print the help and succeed.
func Family(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[familyCommand] = "true"
	cmd.Args = noSubcommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(children...)
	return cmd
}
