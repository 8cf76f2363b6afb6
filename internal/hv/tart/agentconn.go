package tart

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// agentConn is a connection to a port of the guest through tart's guest agent.
type agentConn struct {
	stdin  io.WriteCloser
	stdout io.ReadCloser
	cmd    *exec.Cmd
	close  sync.Once
}

// dialByAgent connects to a port on the guest's loopback.
func (m *machine) dialByAgent(ctx context.Context, port int) (*agentConn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// The connection outlives the context of the dial.
	cmd := exec.Command(m.driver.cli.path, //nolint:noctx // Close ends it
		"exec", "-i", m.id, "/usr/bin/nc", loopback, strconv.Itoa(port))
	cmd.Env = m.driver.cli.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	return &agentConn{stdin: stdin, stdout: stdout, cmd: cmd}, nil
}

// Read reads what the guest sends.
func (c *agentConn) Read(b []byte) (int, error) { return c.stdout.Read(b) }

// Write sends to the guest.
func (c *agentConn) Write(b []byte) (int, error) { return c.stdin.Write(b) }

// CloseWrite tells the guest that nothing more is sent.
func (c *agentConn) CloseWrite() error { return c.stdin.Close() }

// Close ends the connection. Further calls wait for the first one and do nothing.
func (c *agentConn) Close() error {
	c.close.Do(func() {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		_ = c.stdin.Close()
		_ = c.cmd.Wait() // its exit code has no meaning: it was killed
	})
	return nil
}
