// Package selfexec changes the machine that a program runs on, as far as the program itself is
// concerned: it asks other versions of it who they are, becomes one of them, and runs its
// sisters.
//
// It is not the facts of a machine (agent/host reads those) and knows nothing of nodes or
// packages. It installs no service.
//
// Invariant: Become either does not return or has changed nothing.
package selfexec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	askTime   = 20 * time.Second // for a program to say its version
	maxAnswer = 4 << 10          // bytes of that
)

// Version runs a program to ask for its version: the last word of what it answers to --version.
func Version(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	cmd.Env = []string{}
	out, err := cmd.Output()
	if err != nil {
		if said, ok := errors.AsType[*exec.ExitError](err); ok && len(said.Stderr) > 0 {
			return "", fmt.Errorf("%w: %.200s", err, said.Stderr)
		}
		return "", err
	}
	words := strings.Fields(string(out[:min(len(out), maxAnswer)]))
	if len(words) == 0 {
		return "", errors.New("it says no version")
	}
	return words[len(words)-1], nil
}

// maxOutput bounds what Run gives.
const maxOutput = 64 << 20

// Run runs a program in a directory and gives what it printed. What it says on its standard
// error is in the error when it fails.
func Run(ctx context.Context, dir, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	out, err := cmd.Output()
	if said, ok := errors.AsType[*exec.ExitError](err); ok && len(said.Stderr) > 0 {
		err = fmt.Errorf("%w: %.1000s", err, strings.TrimSpace(string(said.Stderr)))
	}
	if len(out) > maxOutput {
		return "", fmt.Errorf("%s printed more than %d bytes", path, maxOutput)
	}
	return string(out), err
}

// Exec replaces this process by a program, with the same arguments, environment, number
// and streams. What is open is closed, and what this process has started continues.
func Exec(path string) error {
	args := append([]string{path}, os.Args[1:]...)
	if err := syscall.Exec(path, args, os.Environ()); err != nil { //nolint:gosec // the caller has verified it
		return fmt.Errorf("begin %s: %w", path, err)
	}
	return nil
}

// Path returns the file of this program. One that was replaced meanwhile is named as before.
func Path() (string, error) {
	path, err := os.Executable()
	return strings.TrimSuffix(path, " (deleted)"), err
}
