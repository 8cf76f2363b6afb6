package main

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

// stopVM pulls the plug: SIGINT to the process that runs the VM, and SIGKILL after the time-out.
func stopVM(ctx context.Context, c *call) error {
	v, err := c.existing(c.name())
	if err != nil {
		return err
	}
	timeout, err := c.seconds(30, "timeout", "t")
	if err != nil {
		return err
	}
	state, err := v.state()
	if err != nil {
		return err
	}
	if state == "suspended" {
		return os.Remove(v.path(stateFile))
	}
	_, p, err := c.running(c.name())
	if err != nil {
		return err
	}
	if err := p.Signal(syscall.SIGINT); err != nil {
		return err
	}
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		if pid, err := v.owner(); err != nil || pid != p.PID {
			return err
		}
		fakeguest.Pause(ctx, 100*time.Millisecond)
	}
	return p.Kill()
}

// suspendVM returns before the state is written.
func suspendVM(_ context.Context, c *call) error {
	_, p, err := c.running(c.name())
	if err != nil {
		return err
	}
	return p.Signal(syscall.SIGUSR1)
}
