package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one of our programs: it can be killed and started again with the same
// arguments, and its output goes to one file.
type process struct {
	name string
	bin  string
	args []string
	log  string

	mu   sync.Mutex // guards the fields below
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

func newProcess(dir, name, bin string, args ...string) *process {
	return &process{name: name, bin: bin, args: args, log: filepath.Join(dir, name+".log")}
}

// start starts the program; it must not run already.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(p.bin, p.args...) //nolint:noctx // it is ended by a signal, not by a context
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is ours to handle
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
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

// running says whether the program runs.
func (p *process) running() bool {
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

// signal sends a signal and waits until the program has ended. It is an error when
// the program had ended by itself before.
func (p *process) signal(sig os.Signal, limit time.Duration) error {
	p.mu.Lock()
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if !p.running() {
		return fmt.Errorf("%s ended by itself: %s; it said: %s", p.name, cmd.ProcessState, p.tail())
	}
	if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	select {
	case <-done:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s did not end within %s after %s", p.name, limit, sig)
	}
}

// kill ends the program at once.
func (p *process) kill() error { return p.signal(syscall.SIGKILL, 10*time.Second) }

// end ends the program orderly, or by force when it does not.
func (p *process) end() error {
	if !p.running() {
		return nil
	}
	err := p.signal(syscall.SIGTERM, 30*time.Second)
	if p.running() {
		err = errors.Join(err, p.kill())
	}
	return err
}

// tail gives the last lines of the program's output.
func (p *process) tail() string {
	raw, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 2000
	if len(raw) > most {
		raw = raw[len(raw)-most:]
	}
	return strings.TrimSpace(string(raw))
}

// output runs a program to its end and gives what it printed.
func output(ctx context.Context, dir, bin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Dir, cmd.Env = dir, environment()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(bin), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// freeAddr gives a loopback address whose port is free now.
func freeAddr(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
