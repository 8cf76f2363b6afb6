package hv

import (
	"regexp"
	"time"
)

// Limits of Exec.
const (
	// MaxStdin bounds what is sent to a command.
	MaxStdin = 8 << 20
	// MaxOutput is how much is kept of stdout and of stderr: their last bytes.
	MaxOutput = 1 << 20
	// CodeTimedOut is Result.Code of a command that its time-out ended.
	CodeTimedOut = -1
	// CodeNotFound is Result.Code when the guest has no such program, as
	// shells have it.
	CodeNotFound = 127
)

// Command is one program to run in the guest, as the guest's administrator.
type Command struct {
	Path    string   // program; looked up in the guest's PATH when it has no '/'
	Args    []string // without the program's own name
	Env     []string // "KEY=value", added to a small environment with PATH and HOME
	Stdin   []byte   // at most MaxStdin
	Timeout time.Duration
	// Timeout 0 means none: the context alone bounds the command. When either
	// ends, the command's whole process group is killed.
}

// Script is the Command that runs a shell script given on stdin, which is how
// startup scripts run: assignments at its head are ordinary shell text.
func Script(text []byte, timeout time.Duration) Command {
	return Command{Path: "/bin/sh", Stdin: text, Timeout: timeout}
}

// Result is how a command ended.
type Result struct {
	Code     int    // exit code; 128+n after signal n; CodeTimedOut when TimedOut
	Stdout   []byte // the last MaxOutput bytes
	Stderr   []byte
	TimedOut bool
	Errors   []string // what went wrong around the command, nil if nothing
}

var envForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=[^\x00]*$`)

// Validate answers an ErrRefused for a command that no driver should run.
// Its texts never hold values of the environment or of stdin.
func (c Command) Validate() error {
	if c.Path == "" {
		return Refuse("a command needs a program")
	}
	if len(c.Stdin) > MaxStdin {
		return Refuse("%d bytes for stdin: at most %d are possible", len(c.Stdin), MaxStdin)
	}
	if c.Timeout < 0 {
		return Refuse("time-out %s is negative", c.Timeout)
	}
	for i, kv := range c.Env {
		if !envForm.MatchString(kv) {
			return Refuse("environment entry %d is no KEY=value", i)
		}
	}
	return nil
}

// Tail answers the last MaxOutput bytes of b.
func Tail(b []byte) []byte {
	if len(b) > MaxOutput {
		return b[len(b)-MaxOutput:]
	}
	return b
}
