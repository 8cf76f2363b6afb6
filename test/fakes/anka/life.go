package main

import (
	"context"
	"io"
	"time"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

// stopVM asks the guest to shut down and waits for its end, however long that takes; -f pulls the plug.
func stopVM(ctx context.Context, c *call) (any, error) {
	v, err := c.find(c.operand(0))
	if err != nil {
		return nil, err
	}
	switch status := v.status(); {
	case c.has("f", "force"):
		return nil, v.forceStop(ctx)
	case status == failed:
		return nil, v.failedError()
	case status == running:
		return nil, v.shutDown(ctx, fakeguest.Shutdown)
	}
	return nil, nil //nolint:nilnil // it is stopped, and the body is null
}

// forceStop ends the VM, or the failed state of one that does not run.
func (v *vm) forceStop(ctx context.Context) error {
	if err := v.kill(ctx); err != nil {
		return err
	}
	v, err := v.library.read(v.UUID)
	if err != nil {
		return err
	}
	if v.status() != failed {
		return nil
	}
	v.State, v.Stopped = stopped, now()
	return v.write()
}

// shutDown sends a request to the guest until its agent has it, and waits for the end of the VM.
func (v *vm) shutDown(ctx context.Context, kind string) error {
	p, err := cliproc.Find(v.pid())
	if err != nil {
		return nil //nolint:nilerr // it has ended
	}
	for p.IsAlive() {
		if _, err := fakeguest.Call(v.dir(), fakeguest.Request{Kind: kind}, nil, io.Discard, io.Discard); err == nil {
			break
		}
		fakeguest.Pause(ctx, 50*time.Millisecond)
	}
	for kind == fakeguest.Shutdown && p.IsAlive() {
		fakeguest.Pause(ctx, 20*time.Millisecond)
	}
	return nil
}

// suspendVM stops the VM on Apple silicon, and only shows it as suspended.
func suspendVM(ctx context.Context, c *call) (any, error) {
	v, err := c.find(c.operand(0))
	if err != nil {
		return nil, err
	}
	if v.status() != running {
		return nil, fail(codeFailure, "%s: is not running", v.Name)
	}
	v.SuspendEnd = true
	if err := v.write(); err != nil {
		return nil, err
	}
	return nil, v.shutDown(ctx, fakeguest.Shutdown)
}

func rebootVM(ctx context.Context, c *call) (any, error) {
	v, err := c.find(c.operand(0))
	if err != nil {
		return nil, err
	}
	if v.status() != running {
		return nil, fail(codeFailure, "%s: is not running", v.Name)
	}
	if !c.has("f", "force") {
		return nil, v.shutDown(ctx, fakeguest.Reboot)
	}
	if err := v.forceStop(ctx); err != nil {
		return nil, err
	}
	if v, err = c.read(v.UUID); err != nil {
		return nil, err
	}
	return nil, v.start(ctx)
}
