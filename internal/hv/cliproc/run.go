package cliproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	defaultTimeout   = time.Minute
	defaultKeepBytes = 64 << 10
	outputDelay      = 2 * time.Second // for outputs that another process still holds after the program's end
)

// Command is one call of a program.
type Command struct {
	Path string
	Args []string // the first one is the subcommand, which errors name; the others may be secret and stay out of errors
	Env  []string // the whole environment; nil is an empty one
	Dir  string   // "" = that of this process

	// Stdin is the program's input; nil = the null device. A Read that blocks delays nothing, but its goroutine ends
	// only when it returns. A Read that fails ends the program, as it would take a part for the whole.
	Stdin io.Reader

	// Inherited is an open file that the program keeps open to its end, such as one with a lock that is then held even
	// if this process ends earlier; nil = none. The caller closes its own copy.
	Inherited *os.File

	Timeout   time.Duration // 0 = one minute
	KeepBytes int           // of each output, its last part is kept; 0 = 64 KiB
}

// Result is what a program has left.
type Result struct {
	Stdout, Stderr []byte
	Truncated      bool // the beginning of an output was dropped
}

// Run runs a program in its own process group and waits for its end. When the time-out has passed or ctx is done, it
// kills the whole group. An error is an *Error, and the outputs up to then are returned with it.
func Run(ctx context.Context, c Command) (Result, error) {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrTimedOut)
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)

	stdout, err1 := newOutput(c.KeepBytes)
	stderr, err2 := newOutput(c.KeepBytes)
	cmd := prepare(ctx, c)
	cmd.Stdout, cmd.Stderr = stdout.write, stderr.write
	sendInput, err3 := connectInput(cmd, c.Stdin)
	err := errors.Join(err1, err2, err3)
	if err == nil {
		err = cmd.Start()
	}
	isStarted := err == nil
	endInput := sendInput(abort)
	if isStarted {
		stdout.begin()
		stderr.begin()
		err = cmd.Wait()
	}
	endInput()
	stdout.end(isStarted)
	stderr.end(isStarted)
	if isStarted && (err != nil || stdout.isHeld || stderr.isHeld) { // nothing of the group may stay behind
		_ = killGroup(cmd.Process.Pid)
	}

	result := Result{stdout.bytes(), stderr.bytes(), stdout.dropped() || stderr.dropped()}
	return result, c.outcome(ctx, cmd.ProcessState, stderr.tail, err)
}

// prepare returns the command with its process group and environment.
func prepare(ctx context.Context, c Command) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Env, cmd.Dir = environment(c.Env), c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	if c.Inherited != nil {
		cmd.ExtraFiles = []*os.File{c.Inherited}
	}
	return cmd
}

// connectInput makes a pipe for the input, since package exec would wait for a Read that blocks. The function that it
// returns has to be called after the start: it sends the input, and returns what ends that.
func connectInput(cmd *exec.Cmd, input io.Reader) (func(context.CancelCauseFunc) func(), error) {
	nothing := func(context.CancelCauseFunc) func() { return func() {} }
	if file, ok := input.(*os.File); ok || input == nil {
		if file != nil {
			cmd.Stdin = file
		}
		return nothing, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nothing, err
	}
	cmd.Stdin = r
	return func(abort context.CancelCauseFunc) func() {
		_ = r.Close() // the program has its own descriptor
		go func() {
			defer w.Close()
			if _, err := io.Copy(inputWriter{w}, input); err != nil {
				abort(fmt.Errorf("read the input of the program: %w", err))
			}
		}()
		return func() { _ = w.Close() }
	}, nil
}

// inputWriter drops what a program does not read any longer: that is not a failure of the input.
type inputWriter struct{ pipe *os.File }

func (w inputWriter) Write(b []byte) (int, error) {
	if _, err := w.pipe.Write(b); err != nil {
		return len(b), nil //nolint:nilerr // the program has closed its input, or has ended
	}
	return len(b), nil
}

// environment makes sure that no environment means an empty one, not that of this process.
func environment(env []string) []string {
	if env == nil {
		return []string{}
	}
	return env
}

// killGroup ends a process group. A group exists as long as one of its processes, so that its number is not reused.
func killGroup(pid int) error {
	err := syscall.Kill(-pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
