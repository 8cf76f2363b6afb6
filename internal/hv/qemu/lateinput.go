package qemu

import (
	"context"
	"errors"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/guestscript"
	"github.com/buildyard/buildyard/internal/retry"
)

const (
	// maxLateStdin is how much a pipe in the guest takes without a reader: the guest agent does not wait for one.
	maxLateStdin = 64 << 10

	inputPipeTimeout = 30 * time.Second // for the guest to make the pipe
	inputPipePoll    = 20 * time.Millisecond
	closeTimeout     = 2 * time.Second // a VM whose guest hangs is removed after it
)

var errLongInput = errors.New("the input does not fit into a pipe of the guest")

// startAwaiting starts the command, waits for its input, and writes that to a pipe in the guest. ErrNoInput means that
// the program has got none of the input.
func (g *guestCommand) startAwaiting(ctx context.Context, cmd hv.Command) (input hv.Input, err error) {
	if err := g.startProgram(ctx, guestscript.AwaitingArgs(g.name, cmd), cmd.Env, nil); err != nil {
		return input, err
	}
	pipe, err := g.openInputPipe(ctx)
	if err != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), killReportTimeout)
		defer cancel()
		g.killOrLog(last)
		return input, err
	}
	defer func() { err = errors.Join(err, pipe.close(ctx)) }() // the end of the input
	if input, err = g.awaitInput(ctx, cmd); err != nil {
		return input, err
	}
	if err := g.writeInput(ctx, pipe, input.Stdin); err != nil {
		return input, errors.Join(hv.ErrNoInput, err)
	}
	return input, nil
}

// awaitInput calls AwaitInput, and ends it when the VM has ended.
func (g *guestCommand) awaitInput(ctx context.Context, cmd hv.Command) (hv.Input, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-g.run.exited:
			cancel(errProcessGone)
		case <-ctx.Done():
		}
	}()
	input, err := cmd.AwaitInput(ctx)
	if err == nil {
		err = input.Validate()
	}
	return input, err
}

// writeInput writes the input to a program that has not ended.
func (g *guestCommand) writeInput(ctx context.Context, pipe guestFile, stdin []byte) error {
	if len(stdin) > maxLateStdin {
		return errLongInput
	}
	var s execStatus
	if err := g.run.guestAgent.call(ctx, "guest-exec-status", map[string]int{"pid": g.pid}, &s); err != nil {
		return err
	}
	if s.Exited {
		return errors.New("the program has ended")
	}
	if len(stdin) == 0 {
		return nil
	}
	return pipe.write(ctx, stdin)
}

// openInputPipe opens the pipe of the command as soon as the guest has made it. It is opened for reading, too: that
// does not wait for the program, and makes no file.
func (g *guestCommand) openInputPipe(ctx context.Context) (guestFile, error) {
	ctx, cancel := context.WithTimeout(ctx, inputPipeTimeout)
	defer cancel()
	for {
		for _, path := range guestscript.InputPipes(g.name) {
			f := guestFile{agent: g.run.guestAgent}
			req := map[string]string{"path": path, "mode": "r+"}
			err := g.run.guestAgent.call(ctx, "guest-file-open", req, &f.handle)
			if err == nil {
				return f, nil
			}
			if _, refused := errors.AsType[*remoteError](err); !refused {
				return guestFile{}, err
			}
		}
		if err := retry.Sleep(ctx, inputPipePoll); err != nil {
			return guestFile{}, errors.New("the guest has not made the pipe for the input of a command")
		}
	}
}

// guestFile is a file that the guest agent has opened.
type guestFile struct {
	agent  *guestAgent
	handle int
}

// write gives bytes to the guest agent, which may keep them until close.
func (f guestFile) write(ctx context.Context, b []byte) error {
	var wrote struct {
		Count int `json:"count"`
	}
	req := struct {
		Handle int    `json:"handle"`
		Bytes  []byte `json:"buf-b64"`
	}{f.handle, b}
	if err := f.agent.call(ctx, "guest-file-write", req, &wrote); err != nil {
		return err
	}
	if wrote.Count != len(b) {
		return errors.New("the guest agent has written a part of the input")
	}
	return nil
}

// close also succeeds where the guest agent no longer knows the file, as after a restart of the guest.
func (f guestFile) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := f.agent.call(ctx, "guest-file-close", map[string]int{"handle": f.handle}, nil)
	if _, refused := errors.AsType[*remoteError](err); refused {
		return nil
	}
	return err
}
