package fakeguest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

const inputFrames = 1024 // that wait for a command that does not read

// answer serves one connection to the guest agent.
func (g *Guest) answer(ctx context.Context, c *frameConn, requests chan<- string) {
	defer c.Close()
	_, content, err := c.receive()
	if err != nil {
		return
	}
	var r Request
	if err := json.Unmarshal(content, &r); err != nil {
		return
	}
	switch r.Kind {
	case Exec:
		_ = c.sendExit(g.exec(ctx, c, r))
	case Address:
		_ = c.send(frameStdout, []byte(g.Address+"\n"))
		_ = c.sendExit(0)
	case Sync:
		_ = c.sendExit(g.sync(c))
	case Shutdown, Reboot:
		if r.Kind == Shutdown {
			_ = c.send(frameStdout, []byte("Shutdown NOW!\n"))
		}
		_ = c.sendExit(0)
		requests <- r.Kind
	}
}

// sync writes the files to the disk while the guest runs.
func (g *Guest) sync(c *frameConn) (code int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.Store(Path(g.Dir, Home)); err != nil {
		_ = c.send(frameStderr, []byte(err.Error()+"\n"))
		return 1
	}
	return 0
}

// command returns a command of the guest. Paths of the host's programs that could end the host are redirected.
func (g *Guest) command(ctx context.Context, args []string) *exec.Cmd {
	args = Redirect(args, Path(g.Dir, bin))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = Path(g.Dir, Home)
	return cmd
}

// exec runs a command as the real agent does: it waits for the end of both outputs, which a background child may
// delay indefinitely, and kills the direct child alone when the client has ended.
func (g *Guest) exec(ctx context.Context, c *frameConn, r Request) (code int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := g.command(ctx, r.Args)
	cmd.Env = append(os.Environ(), r.Env...)
	if r.Dir != "" {
		cmd.Dir = r.Dir
	}
	cmd.Stdout, cmd.Stderr = frameWriter{c, frameStdout}, frameWriter{c, frameStderr}
	if r.TTY {
		cmd.Stderr = cmd.Stdout
	}
	input := make(chan []byte, inputFrames)
	if r.Stdin {
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return 1
		}
		go feed(stdin, input)
	}
	go func() {
		receiveInput(c, input)
		cancel()
	}()
	return finish(cmd, cmd.Run(), cmd.Stderr)
}

// receiveInput passes on the input until the client has ended.
func receiveInput(c *frameConn, input chan<- []byte) {
	for {
		kind, content, err := c.receive()
		if err != nil {
			close(input)
			return
		}
		if kind == frameInputEnd {
			content = nil
		}
		input <- content
	}
}

// feed writes the input of a command; nil or the end of the channel is its end.
func feed(stdin io.WriteCloser, input <-chan []byte) {
	defer stdin.Close()
	for content := range input {
		if content == nil {
			break
		}
		if _, err := stdin.Write(content); err != nil {
			break
		}
	}
	_ = stdin.Close()
	for range input { // what the command does not read
	}
}

// finish returns the exit code of a command: 255 when a signal has ended it, 1 when it was not started.
func finish(cmd *exec.Cmd, err error, stderr io.Writer) int {
	if cmd.ProcessState == nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 255
	}
	return cmd.ProcessState.ExitCode()
}
