package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/rest/porttest"
)

// Process is one of our programs: it can be killed and started again with the same
// arguments, and its output goes to one file.
type Process struct {
	Name string
	Log  string // file of its output
	bin  string
	args []string
	env  []string

	mu   sync.Mutex // guards the fields below
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// NewProcess prepares a program; its output goes to dir.
func NewProcess(dir, name, bin string, args ...string) *Process {
	return &Process{Name: name, bin: bin, args: args, Log: filepath.Join(dir, name+".log")}
}

// With adds arguments, which count from the next start on.
func (p *Process) With(args ...string) { p.args = append(p.args, args...) }

// Set adds settings by the environment, which count from the next start on: no secret of theirs
// stands in the list of processes.
func (p *Process) Set(settings map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		p.env = append(p.env, key+"="+settings[key])
	}
}

// Start starts the program; it must not run already.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(p.bin, p.args...) //nolint:noctx // it is ended by a signal, not by a context
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(environment(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is ours to handle
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	return nil
}

// environment is ours without settings that would change what the programs do.
func environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "SVC_") {
			env = append(env, e)
		}
	}
	return env
}

// Running reports whether the program runs.
func (p *Process) Running() bool {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	if done == nil {
		return false
	}
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// Killed reports whether the program that was started last has ended by SIGKILL.
func (p *Process) Killed() bool {
	if p.Running() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.cmd.ProcessState == nil {
		return false
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// PID returns the id of the process that was started last; 0 before the first start.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// signal sends a signal and waits until the program has ended. It is an error when the program had
// ended before.
func (p *Process) signal(sig os.Signal, limit time.Duration) error {
	p.mu.Lock()
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if !p.Running() {
		return fmt.Errorf("%s ended by itself: %s; it said: %s", p.Name, cmd.ProcessState, p.Tail())
	}
	if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	select {
	case <-done:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s did not end within %s after %s", p.Name, limit, sig)
	}
}

// Kill ends the program immediately.
func (p *Process) Kill() error { return p.signal(syscall.SIGKILL, 10*time.Second) }

// Rush asks the program to end gracefully and kills it when it has not ended after patience; it
// reports whether that was needed.
func (p *Process) Rush(patience time.Duration) (killed bool, err error) {
	if p.signal(syscall.SIGTERM, patience) == nil || !p.Running() {
		return false, nil
	}
	if err := p.Kill(); err != nil && p.Running() {
		return true, err
	}
	return true, nil
}

// End ends the program gracefully, or by force when it does not end.
func (p *Process) End() error {
	if !p.Running() {
		return nil
	}
	err := p.signal(syscall.SIGTERM, 30*time.Second)
	if p.Running() {
		err = errors.Join(err, p.Kill())
	}
	return err
}

// Tail returns the last lines of the program's output.
func (p *Process) Tail() string {
	raw, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	const most = 2000
	if len(raw) > most {
		raw = raw[len(raw)-most:]
	}
	return strings.TrimSpace(string(raw))
}

// Output runs a program to its end and returns its output.
func Output(ctx context.Context, dir, bin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Dir, cmd.Env = dir, environment()
	// A program that is broken off, and those it has started, may have to clean up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(bin), strings.Join(args, " "),
			err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// FreeAddr returns a loopback address whose port is free now.
func FreeAddr(ctx context.Context) (string, error) { return porttest.FreeAddr(ctx, loopback) }

const loopback = "127.0.0.1"

// Pause waits, and reports whether the context is still active.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
