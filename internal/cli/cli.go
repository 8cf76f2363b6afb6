// Package cli is what the programs' commands have in common: how a command ends.
//
// It is not the commands themselves; those lie in a sub-package a program.
//
// Invariant: a program that fails says so in one line on standard error, and its
// exit code is one of those listed here.
package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// The exit codes of every program.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2 // wrong flags, arguments or settings
)

// usageError is an error of whoever typed the command.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks an error as one of wrong usage.
func Usage(err error) error { return usageError{err} }

// Run runs a command tree, says what went wrong and gives the exit code. An error
// before a command's own code runs is one of wrong usage.
func Run(ctx context.Context, root *cobra.Command) int {
	root.SilenceUsage, root.SilenceErrors = true, true
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
	each(root, mark)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	_, _ = fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", root.Name(), err)
	var usage usageError
	if began && !errors.As(err, &usage) {
		return ExitFailed
	}
	_, _ = fmt.Fprintf(root.ErrOrStderr(), "See: %s --help\n", cmd.CommandPath())
	return ExitUsage
}

func each(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, child := range cmd.Commands() {
		each(child, do)
	}
}
