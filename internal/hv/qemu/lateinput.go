package qemu

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/guestscript"
	"github.com/buildyard/buildyard/internal/retry"
)

const (
	// maxLateStdin is how much a pipe in the guest takes without a reader: the guest agent does not wait for one.
	maxLateStdin = 64 << 10

	inputPipeTimeout = 10 * time.Second // for the guest to make the pipe
	inputPipePoll    = 20 * time.Millisecond
	closeTimeout     = 2 * time.Second // of a pipe without input: a VM whose guest hangs is removed after it

	commandNotFound = "CommandNotFound" // class of the error of a guest agent that lacks a command, or may not run it
	noSuchFile      = "No such file"    // in the error of a guest agent for a file that is not there
)

// startAwaiting starts the command, waits for its input, and writes that to a pipe in the guest. ErrNoInput means that
// the program has received none of the input.
func (g *guestCommand) startAwaiting(ctx context.Context, cmd hv.Command) (input hv.Input, err error) {
	if err := g.startProgram(ctx, guestscript.AwaitingArgs(g.name, cmd), cmd.Env, nil); err != nil {
		return input, err
	}
	pipe, err := g.openInputPipe(ctx)
	switch {
	case ctx.Err() != nil: // the VM is removed
		return input, ctx.Err()
	case err != nil:
		return input, errors.Join(err, g.release(ctx))
	}
	if input, err = g.awaitInput(ctx, cmd); err == nil {
		err = g.checkReady(ctx, input.Stdin)
	}
	if err != nil || len(input.Stdin) == 0 {
		return input, errors.Join(err, pipe.close(ctx, closeTimeout))
	}
	err = pipe.write(ctx, input.Stdin)
	if err == nil {
		err = pipe.close(ctx, qgaTimeout)
	}
	if err == nil {
		return input, nil
	}
	// The program may have received the input, or a part of it: it must not run any longer, nor once more.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), killReportTimeout)
	defer cancel()
	g.killOrLog(last)
	_ = pipe.close(ctx, closeTimeout)
	// Not wrapped: a time limit of the guest agent is none of the command.
	return input, errors.New("the guest agent did not confirm that the command has its input: " + err.Error())
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

// checkReady returns ErrNoInput for input that the program cannot get.
func (g *guestCommand) checkReady(ctx context.Context, stdin []byte) error {
	if len(stdin) == 0 {
		return nil
	}
	if len(stdin) > maxLateStdin {
		return fmt.Errorf("%w: %d bytes do not fit into a pipe of the guest", hv.ErrNoInput, len(stdin))
	}
	var s execStatus
	if err := g.run.guestAgent.call(ctx, "guest-exec-status", map[string]int{"pid": g.pid}, &s); err != nil {
		return errors.Join(hv.ErrNoInput, err)
	}
	if s.Exited {
		return fmt.Errorf("%w: it has ended", hv.ErrNoInput)
	}
	return nil
}

// release ends the input of a command whose pipe the guest agent does not open.
func (g *guestCommand) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killReportTimeout)
	defer cancel()
	r := guestCommand{run: g.run}
	if err := r.startProgram(ctx, guestscript.ReleaseArgs(g.name), nil, nil); err != nil {
		return err
	}
	_, err := r.wait(ctx)
	return err
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
			refused, isRefusal := errors.AsType[*remoteError](err)
			if !isRefusal || refused.Class == commandNotFound || !strings.Contains(refused.Desc, noSuchFile) {
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

// write writes bytes to the file. After an error, some of them may have been written.
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
		return fmt.Errorf("the guest agent has written %d of %d bytes", wrote.Count, len(b))
	}
	return f.agent.call(ctx, "guest-file-flush", map[string]int{"handle": f.handle}, nil)
}

// close also succeeds where the guest agent no longer knows the file, as after a restart of the guest.
func (f guestFile) close(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	err := f.agent.call(ctx, "guest-file-close", map[string]int{"handle": f.handle}, nil)
	if _, refused := errors.AsType[*remoteError](err); refused {
		return nil
	}
	return err
}
