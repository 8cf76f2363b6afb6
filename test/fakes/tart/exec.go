package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

// execInVM runs a command in the guest. Its own failures are exit codes 1 and 2, which the command may have as well.
func execInVM(_ context.Context, c *call) error {
	v, _, err := c.running(c.name())
	if err != nil {
		return err
	}
	var stdin io.Reader
	if c.has("i") {
		stdin = os.Stdin
	}
	r := fakeguest.Request{Kind: fakeguest.Exec, Args: c.rest, Stdin: stdin != nil, TTY: c.has("t")}
	code, err := fakeguest.Call(v.dir, r, stdin, os.Stdout, os.Stderr)
	if noAgent, ok := errors.AsType[fakeguest.NoAgentError](err); ok {
		return fail(1, "Failed to connect to the VM using its control socket: %v, is the Tart Guest Agent running?",
			noAgent)
	}
	if err != nil {
		return fail(1, "Error: unavailable (14): %v", err)
	}
	if code != 0 {
		return fail(code, "")
	}
	return nil
}
