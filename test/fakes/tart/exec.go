package main

import (
	"context"
	"errors"
	"io"
	"os"
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
	r := guestRequest{Kind: kindExec, Args: c.rest, Stdin: stdin != nil, TTY: c.has("t")}
	code, err := callGuest(v, controlFile, r, stdin, os.Stdout, os.Stderr)
	if noAgent, ok := errors.AsType[errNoAgent](err); ok {
		return fail(1, "Failed to connect to the VM using its control socket: %v, is the Tart Guest Agent running?",
			noAgent.error)
	}
	if err != nil {
		return fail(1, "Error: unavailable (14): %v", err)
	}
	if code != 0 {
		return fail(code, "")
	}
	return nil
}
