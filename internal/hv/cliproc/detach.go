package cliproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// StartDetached starts a program that outlives this process: in its own session, so that no signal to this process
// reaches it, with the null device as input and its outputs appended to a log file. Stdin, Timeout and KeepBytes of
// the command have no effect. An error is an *Error, and then nothing runs.
func StartDetached(c Command, logPath string) (Process, error) {
	log, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return Process{}, c.failure(errors.Join(ErrNotStarted, err))
	}
	defer log.Close()

	cmd := exec.Command(c.Path, c.Args...) //nolint:noctx // it outlives every context
	cmd.Env, cmd.Dir = environment(c.Env), c.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Process{}, c.failure(errors.Join(ErrNotStarted, err))
	}

	started, _, err := inspect(cmd.Process.Pid) // it has not been waited for, so that it still has its PID
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return Process{}, c.failure(errors.Join(ErrNotStarted, fmt.Errorf("read its start time: %w", err)))
	}
	go func() { _ = cmd.Wait() }() // no zombie stays while this process lives
	return Process{cmd.Process.Pid, started}, nil
}
