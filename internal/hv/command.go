package hv

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"
)

// Limits of Exec.
const (
	// MaxStdinBytes limits the standard input of a command.
	MaxStdinBytes = 8 << 20
	// MaxOutputBytes is how much is kept of stdout and of stderr: their last bytes.
	MaxOutputBytes = 1 << 20
	// MaxLiveOutputBytes is how much of stdout and of stderr Command.OnOutput gets: their last bytes.
	MaxLiveOutputBytes = 16 << 10
	// CodeTimedOut is Result.Code of a command that was ended by its timeout.
	CodeTimedOut = -1
	// CodeNotFound is Result.Code when the guest does not have the program, as in shells.
	CodeNotFound = 127
)

// Command is one program to run in the guest, as the guest's administrator.
type Command struct {
	Path    string   // program; looked up in the guest's PATH when it has no '/'
	Args    []string // without the program's own name
	Env     []string // "KEY=value", added to a small environment with PATH and HOME
	Stdin   []byte   // at most MaxStdinBytes
	Timeout time.Duration
	// Timeout 0 means none: only the context limits the command. When either ends, the command's
	// whole process group is killed.

	// OnOutput, unless nil, is called while the command runs with the last MaxLiveOutputBytes bytes of
	// what it has printed so far. How often depends on the driver: every few seconds for a real guest, and
	// never for one that cannot be asked. It is called by one goroutine, and not after Exec has returned.
	OnOutput func(stdout, stderr []byte)

	// AwaitInput, unless nil, is called once the program runs, or is about to, and returns what Stdin, Timeout and
	// OnOutput are from then on: a caller that has the program started beforehand does not wait for that later. Its
	// context ends when the command is canceled or its VM has ended. Its error is what Exec returns; the program finds
	// its stdin empty then and is not waited for.
	AwaitInput func(context.Context) (Input, error)
}

// Input is the part of a command that Command.AwaitInput returns.
type Input struct {
	Stdin    []byte // at most MaxStdinBytes
	Timeout  time.Duration
	OnOutput func(stdout, stderr []byte)
}

// ErrNoInput reports that a command with AwaitInput has received none of its input: the program had not started, had
// ended, or takes no input of this length. The caller may run the command again.
var ErrNoInput = errors.New("the program has received none of its input")

// scriptShell replaces itself by bash where the guest has it, otherwise by sh.
const scriptShell = `exec "$(command -v bash || echo /bin/sh)"`

// ScriptCommand is the Command that runs a shell script given on stdin, which is how startup scripts run, with bash
// where the guest has it: assignments at its head are ordinary shell text.
func ScriptCommand(text []byte, timeout time.Duration) Command {
	return Command{Path: "/bin/sh", Args: []string{"-c", scriptShell}, Stdin: text, Timeout: timeout}
}

// RunsScript reports whether the command is one of ScriptCommand, for a guest without a real shell.
func (c Command) RunsScript() bool { return slices.Equal(c.Args, []string{"-c", scriptShell}) }

// Result is the result of a command.
type Result struct {
	Code     int    // exit code; 128+n after signal n; CodeTimedOut when TimedOut
	Stdout   []byte // the last MaxOutputBytes bytes
	Stderr   []byte
	TimedOut bool
	Errors   []string // what went wrong around the command, nil if nothing
}

var envPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=[^\x00]*$`)

// Validate returns an ErrRefused for a command that no driver should run. Its texts never contain
// values of the environment or of stdin.
func (c Command) Validate() error {
	if c.Path == "" {
		return RefusedError("a command needs a program")
	}
	if err := (Input{Stdin: c.Stdin, Timeout: c.Timeout}).Validate(); err != nil {
		return err
	}
	if c.AwaitInput != nil && (len(c.Stdin) > 0 || c.Timeout > 0 || c.OnOutput != nil) {
		return RefusedError("a command whose input comes later has some already")
	}
	for i, kv := range c.Env {
		if !envPattern.MatchString(kv) {
			return RefusedError("environment entry %d is not a KEY=value", i)
		}
	}
	return nil
}

// Validate returns an ErrRefused for an input that no command should get.
func (i Input) Validate() error {
	if len(i.Stdin) > MaxStdinBytes {
		return RefusedError("%d bytes for stdin: want at most %d", len(i.Stdin), MaxStdinBytes)
	}
	if i.Timeout < 0 {
		return RefusedError("time-out %s is negative", i.Timeout)
	}
	return nil
}

// LastOutput returns the last MaxOutputBytes bytes of b.
func LastOutput(b []byte) []byte {
	if len(b) > MaxOutputBytes {
		return b[len(b)-MaxOutputBytes:]
	}
	return b
}
