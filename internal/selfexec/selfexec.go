// Package selfexec executes versions of the running program: it asks other versions for their
// version, replaces the process by one of them, and finds and runs related programs.
//
// It does not read the facts of a machine (agent/host does) and knows neither nodes nor packages.
// It installs no service.
//
// Invariant: Exec either does not return or has changed nothing.
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
	askTime   = 20 * time.Second // for a program to print its version
	maxAnswer = 4 << 10          // bytes of that output
)

// Version runs a program with --version and returns the last word of its output.
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
		return "", errors.New("the program printed no version")
	}
	return words[len(words)-1], nil
}

// maxOutput limits the output that Run returns.
const maxOutput = 64 << 20

// Run runs a program in a directory and returns its output. If it fails, the error contains its
// standard error.
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

// Find returns the path of an executable in PATH.
func Find(name string) (string, error) { return exec.LookPath(name) }

// Exec replaces this process by a program, with the same arguments, environment, PID and streams.
// Open files are closed, and processes that this process has started continue.
func Exec(path string) error {
	args := append([]string{path}, os.Args[1:]...)
	if err := syscall.Exec(path, args, os.Environ()); err != nil { //nolint:gosec // the caller has verified it
		return fmt.Errorf("begin %s: %w", path, err)
	}
	return nil
}

// Path returns the file of this program. If the file was replaced in the meantime, its name is the
// same.
func Path() (string, error) {
	path, err := os.Executable()
	return strings.TrimSuffix(path, " (deleted)"), err
}
