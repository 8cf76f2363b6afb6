// Package guestssh runs programs in a guest of this host by SSH, for guests without a guest agent.
//
// It is not for machines outside the host: it does not verify host keys. It copies no files, has no
// terminal, and does not end processes that a program has left behind in the guest.
//
// Invariant: a command is sent to the guest at most once, whatever happens to the connection.
package guestssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/hv"
)

// maxCommandBytes limits a quoted command. Linux takes 128 KiB in one argument.
const maxCommandBytes = 100 << 10

// timeouts of the steps that the guest has to answer.
type timeouts struct {
	dial      time.Duration
	handshake time.Duration // key exchange and login
	session   time.Duration // for the guest to open a session
	begin     time.Duration // for the guest to begin a command
	close     time.Duration // for the guest to confirm the end of a session
}

var defaultTimeouts = timeouts{
	dial: 10 * time.Second, handshake: 20 * time.Second, session: 20 * time.Second, begin: 20 * time.Second,
	close: 2 * time.Second,
}

var (
	// ErrLogin reports that the guest does not accept user and password.
	ErrLogin = errors.New("SSH login refused")
	// ErrUnknownResult reports that a command may have run and that its exit code was not received.
	ErrUnknownResult = errors.New("the result of the command is unknown")
)

// ExitError is the result of a command that ran and did not end with exit code 0.
type ExitError struct {
	Code int // exit code; 128+n after signal n
}

func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// Options are how to log in to the guest.
type Options struct {
	User     string
	Password auth.Secret
}

// Command is one program to run.
type Command struct {
	Args   []string  // the program and its arguments; the guest's shell does not expand them
	Stdin  io.Reader // nil = empty; it may be read for longer than the command runs
	Stdout io.Writer // nil = discarded; the writer bounds what it keeps
	Stderr io.Writer
}

// Client runs commands in one guest. It keeps a connection and replaces it when it is broken or when
// the guest has another address. Its methods may be called from many goroutines.
type Client struct {
	options  Options
	limits   timeouts
	connLock chan struct{} // one element, which guards conn and address; taken with a context
	conn     *ssh.Client   // nil = none
	address  string        // of conn
}

// New returns a client without a connection.
func New(o Options) *Client {
	return &Client{options: o, limits: defaultTimeouts, connLock: make(chan struct{}, 1)}
}

// Close ends the connection, and with it all running commands.
func (c *Client) Close() error {
	c.connLock <- struct{}{}
	defer func() { <-c.connLock }()
	if c.conn == nil {
		return nil
	}
	conn := c.conn
	c.conn = nil
	return conn.Close()
}

// Run runs a command at an address ("host:port") and waits for its end. A command that ends with
// another exit code than 0 is an *ExitError; every other error means that nothing has run, or
// is ErrUnknownResult. When ctx ends, the session is closed, which does not end every program.
func (c *Client) Run(ctx context.Context, address string, cmd Command) error {
	line, err := quote(cmd.Args)
	if err != nil {
		return err
	}
	s, err := c.openSession(ctx, address)
	if err != nil {
		return fmt.Errorf("run a command in the guest at %s: %w", address, err)
	}
	defer func() { _ = s.Close() }() // it has ended
	err = c.runSession(ctx, s, line, cmd)
	if exit, ok := errors.AsType[*ssh.ExitError](err); ok {
		return &ExitError{exit.ExitStatus()}
	}
	if err != nil {
		return fmt.Errorf("run a command in the guest at %s: %w", address, err)
	}
	return nil
}

// runSession starts a command and waits for its end. Nothing is written to the command's outputs
// afterwards: a guest that does not confirm the end of the session loses its connection.
func (c *Client) runSession(ctx context.Context, s session, line string, cmd Command) error {
	s.Stdout, s.Stderr = cmd.Stdout, cmd.Stderr
	stdin := io.WriteCloser(nil)
	if cmd.Stdin != nil { // not Session.Stdin, with which a command fails that does not read all of it
		var err error
		if stdin, err = s.StdinPipe(); err != nil {
			return err
		}
	}
	ended := make(chan struct{})
	defer close(ended)
	stop := context.AfterFunc(ctx, func() {
		go s.Close() //nolint:errcheck // the connection is closed if this does not help
		select {
		case <-ended:
		case <-time.After(c.limits.close):
			_ = s.conn.Close()
		}
	})
	defer stop()

	if err := c.begin(s, line); err != nil {
		return unknownResult(ctx, err)
	}
	if stdin != nil {
		go func() {
			_, _ = io.Copy(stdin, cmd.Stdin)
			_ = stdin.Close()
		}()
	}
	err := s.Wait()
	if _, exited := errors.AsType[*ssh.ExitError](err); err == nil || exited {
		return err
	}
	return unknownResult(ctx, err)
}

// begin has the guest begin a command. The library's error contains the command, of any length.
func (c *Client) begin(s session, line string) error {
	stuck := time.AfterFunc(c.limits.begin, func() { _ = s.conn.Close() })
	err := s.Start(line)
	switch begun := stuck.Stop(); {
	case err == nil:
		return nil
	case !begun:
		return fmt.Errorf("the guest has not begun it within %s", c.limits.begin)
	}
	return fmt.Errorf("the guest has not begun it: %.200s", err.Error())
}

func unknownResult(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrUnknownResult, err)
}

// quote returns the words of a command for the POSIX shell that SSH servers pass commands to.
func quote(args []string) (string, error) {
	if len(args) == 0 {
		return "", hv.RefusedError("a command needs a program")
	}
	words := make([]string, len(args))
	for i, a := range args {
		if strings.ContainsRune(a, 0) {
			return "", hv.RefusedError("argument %d of the command contains a NUL byte", i)
		}
		words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	line := strings.Join(words, " ")
	if len(line) > maxCommandBytes {
		return "", hv.RefusedError("a command of %d bytes: want at most %d; pass the rest on stdin", len(line),
			maxCommandBytes)
	}
	return line, nil
}
