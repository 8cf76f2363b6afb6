package guestssh

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/hv"
)

const (
	user     = "admin"
	password = "correct horse"
	patience = 2 * time.Minute // for what is sure to happen
)

// guest is an SSH server.
type guest struct {
	address     string
	connections atomic.Int32 // that were accepted
	last        atomic.Pointer[ssh.ServerConn]
	wasAsked    atomic.Int32 // exec requests
}

// settings of a guest. exec handles a command after its request was answered.
type settings struct {
	login   func(*ssh.ServerConfig)
	session func(ssh.NewChannel) bool // reports whether it has answered the request for a session
	request func(*ssh.Request) bool   // reports whether it has answered the request to run a command
	exec    func(c ssh.Channel, command string) (code int)
}

func byPassword(c *ssh.ServerConfig) {
	c.PasswordCallback = func(m ssh.ConnMetadata, given []byte) (*ssh.Permissions, error) {
		if m.User() != user || string(given) != password {
			return nil, errors.New("wrong")
		}
		return nil, nil
	}
}

// byQuestion asks as macOS does.
func byQuestion(c *ssh.ServerConfig) {
	c.KeyboardInteractiveCallback = func(
		m ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge,
	) (*ssh.Permissions, error) {
		answers, err := ask("", "", []string{"Password:"}, []bool{false})
		if err != nil || len(answers) != 1 || answers[0] != password || m.User() != user {
			return nil, errors.Join(errors.New("wrong"), err)
		}
		_, err = ask("", "", nil, nil) // some servers end with no question
		return nil, err
	}
}

func runShell(c ssh.Channel, command string) int {
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Stdout, cmd.Stderr = c, c.Stderr()
	stdin, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return 126
	}
	go func() { // which is not waited for: stdin may stay open
		_, _ = io.Copy(stdin, c)
		_ = stdin.Close()
	}()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

// newGuest starts an SSH server that ends with the test.
func newGuest(t *testing.T, s settings) *guest {
	t.Helper()
	config := &ssh.ServerConfig{}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	config.AddHostKey(signer)
	if s.login == nil {
		s.login = byPassword
	}
	if s.exec == nil {
		s.exec = runShell
	}
	s.login(config)

	g := &guest{}
	g.address = listen(t, func(c net.Conn) {
		g.connections.Add(1)
		g.serve(c, config, s)
	})
	return g
}

// listen accepts connections until the end of the test.
func listen(t *testing.T, handle func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return l.Addr().String()
}

func (g *guest) serve(c net.Conn, config *ssh.ServerConfig, s settings) {
	conn, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	g.last.Store(conn)
	go ssh.DiscardRequests(requests)
	for n := range channels {
		if s.session != nil && s.session(n) {
			continue
		}
		channel, requests, err := n.Accept()
		if err != nil {
			return
		}
		go g.serveSession(channel, requests, s)
	}
}

func (g *guest) serveSession(c ssh.Channel, requests <-chan *ssh.Request, s settings) {
	for r := range requests {
		if r.Type != "exec" {
			_ = r.Reply(false, nil)
			continue
		}
		g.wasAsked.Add(1)
		if s.request != nil && s.request(r) {
			continue
		}
		_ = r.Reply(true, nil)
		go func() {
			code := s.exec(c, string(r.Payload[4:]))
			_, _ = c.SendRequest("exit-status", false, binary.BigEndian.AppendUint32(nil, uint32(code)))
			_ = c.Close()
		}()
	}
}

func newClient(t *testing.T) *Client {
	t.Helper()
	c := New(Options{User: user, Password: auth.NewSecret(password)})
	c.limits.close = 10 * time.Millisecond
	t.Cleanup(func() { c.Close() })
	return c
}

// output runs a command and returns its stdout.
func output(t *testing.T, c *Client, g *guest, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if err := c.Run(t.Context(), g.address, Command{Args: args, Stdout: &out, Stderr: &errs}); err != nil {
		t.Fatalf("%q: %v, stderr %q", args, err, errs.String())
	}
	return out.String()
}

// Every argument arrives as it is, through a real shell.
func TestRunQuotes(t *testing.T) {
	g, c := newGuest(t, settings{}), newClient(t)
	args := []string{
		"", "a b", "it's", "''", `"`, `\`, "$HOME `id` $(id)", "*", "a\nb", "~", "=ls", "!!", "-n", "é\xff", "; exit 3",
		"#", "{a,b}",
	}
	want := strings.Join(args, "\x00") + "\x00"
	if got := output(t, c, g, append([]string{"printf", `%s\0`}, args...)...); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRunRefused(t *testing.T) {
	c := newClient(t)
	for want, args := range map[string][]string{
		"a command needs a program":     nil,
		"argument 1 of the command":     {"a", "b\x00c"},
		"a command of 102403 bytes":     {strings.Repeat("x", maxCommandBytes+1)},
		"a command of 102404 bytes: wa": {"", strings.Repeat("x", maxCommandBytes-1)},
	} {
		err := c.Run(t.Context(), "", Command{Args: args})
		if !errors.Is(err, hv.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Inputs, outputs and exit codes of commands, which share a connection.
func TestRun(t *testing.T) {
	for name, login := range map[string]func(*ssh.ServerConfig){"password": byPassword, "keyboard": byQuestion} {
		t.Run(name, func(t *testing.T) {
			g, c := newGuest(t, settings{login: login}), newClient(t)
			big := strings.Repeat("0123456789", 50_000)
			for _, s := range []struct {
				script, stdin, out, errs string
				code                     int
			}{
				{"echo out; echo err >&2; exit 7", "", "out\n", "err\n", 7},
				{"cat", big, big, "", 0},
				{"true", big, "", "", 0}, // reads nothing of it
				{"cat", "", "", "", 0},
			} {
				var out, errs bytes.Buffer
				cmd := Command{Args: []string{"sh", "-c", s.script}, Stdout: &out, Stderr: &errs}
				if s.stdin != "" {
					cmd.Stdin = strings.NewReader(s.stdin)
				}
				err := c.Run(t.Context(), g.address, cmd)
				exit, _ := errors.AsType[*ExitError](err)
				if s.code == 0 && err != nil || s.code != 0 && (exit == nil || exit.Code != s.code) {
					t.Errorf("%s: %v, want code %d", s.script, err, s.code)
				}
				if out.String() != s.out || errs.String() != s.errs {
					t.Errorf("%s: %d bytes, stderr %q", s.script, out.Len(), errs.String())
				}
			}
			if n := g.connections.Load(); n != 1 {
				t.Errorf("%d connections, want 1", n)
			}
		})
	}
}

// A broken connection is replaced before the next command, and so is one to another address.
func TestReconnects(t *testing.T) {
	g, c := newGuest(t, settings{}), newClient(t)
	output(t, c, g, "true")
	_ = g.last.Load().Close()
	output(t, c, g, "true")
	if n := g.connections.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
	other := newGuest(t, settings{})
	output(t, c, other, "true")
	if g.connections.Load() != 2 || other.connections.Load() != 1 {
		t.Errorf("%d and %d connections, want 2 and 1", g.connections.Load(), other.connections.Load())
	}
}

// A connection that breaks during a command is an unknown result, and the command is not repeated.
func TestBrokenDuringCommand(t *testing.T) {
	var g *guest
	g = newGuest(t, settings{exec: func(ssh.Channel, string) int {
		_ = g.last.Load().Close()
		return 0
	}})
	err := newClient(t).Run(t.Context(), g.address, Command{Args: []string{"x"}})
	if !errors.Is(err, ErrUnknownResult) {
		t.Errorf("got %v", err)
	}
	if n := g.wasAsked.Load(); n != 1 {
		t.Errorf("the command was sent %d times", n)
	}
}

// A wrong password says what to do, and does not contain it.
func TestWrongPassword(t *testing.T) {
	for name, login := range map[string]func(*ssh.ServerConfig){"password": byPassword, "keyboard": byQuestion} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t, settings{login: login})
			c := New(Options{User: user, Password: auth.NewSecret("battery staple")})
			err := c.Run(t.Context(), g.address, Command{Args: []string{"true"}})
			if !errors.Is(err, ErrLogin) || !strings.Contains(err.Error(), "set the guest user and password") {
				t.Errorf("got %v", err)
			}
			if shown := fmt.Sprintf("%v %+v %#v", err, c.options, c.options); strings.Contains(shown, "battery") {
				t.Errorf("the password is shown: %s", shown)
			}
		})
	}
}

// A guest that does not answer is given up at each step.
func TestSilentGuest(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	silent := &guest{address: listen(t, func(net.Conn) { <-never })}
	for name, s := range map[string]struct {
		g    *guest
		want string
	}{
		"handshake": {silent, "SSH handshake:"},
		"session": {
			newGuest(t, settings{session: func(ssh.NewChannel) bool { return true }}),
			"open an SSH session:",
		},
		"command": {
			newGuest(t, settings{request: func(*ssh.Request) bool { return true }}),
			"the guest has not begun it within",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			limit := map[string]*time.Duration{
				"handshake": &c.limits.handshake, "session": &c.limits.session, "command": &c.limits.begin,
			}
			*limit[name] = 50 * time.Millisecond
			err := c.Run(t.Context(), s.g.address, Command{Args: []string{"true"}})
			if err == nil || !strings.Contains(err.Error(), s.want) {
				t.Errorf("got %v, want %s", err, s.want)
			}

			c.limits = defaultTimeouts
			c.limits.close = 10 * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err = c.Run(ctx, s.g.address, Command{Args: []string{"true"}})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("with a context: %v", err)
			}
		})
	}
}

// The end of the context ends a command whose output is endless, and nothing is written afterwards.
func TestEndlessOutput(t *testing.T) {
	g := newGuest(t, settings{exec: func(c ssh.Channel, _ string) int {
		for block := make([]byte, 1<<15); ; {
			if _, err := c.Write(block); err != nil {
				return 0
			}
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &countingWriter{after: 10 << 20, call: cancel}
	err := newClient(t).Run(ctx, g.address, Command{Args: []string{"yes"}, Stdout: out})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnknownResult) {
		t.Errorf("got %v", err)
	}
	if n := out.n; n < out.after {
		t.Errorf("only %d bytes arrived", n)
	}
}

// countingWriter calls a function after a number of bytes.
type countingWriter struct {
	n, after int
	call     func()
}

func (w *countingWriter) Write(b []byte) (int, error) {
	if w.n += len(b); w.n >= w.after {
		w.call()
	}
	return len(b), nil
}

// A guest that allows no more sessions keeps those that it has.
func TestSessionLimit(t *testing.T) {
	var open atomic.Int32
	g := newGuest(t, settings{session: func(n ssh.NewChannel) bool {
		if open.Add(1) == 1 {
			return false
		}
		_ = n.Reject(ssh.Prohibited, "open failed")
		return true
	}})
	c := newClient(t)
	in, feed := io.Pipe()
	begun := &countingWriter{after: 1, call: func() {}}
	started, done := make(chan struct{}), make(chan error, 1)
	begun.call = func() { close(started) }
	go func() {
		cmd := Command{Args: []string{"sh", "-c", "echo; cat"}, Stdin: in, Stdout: begun}
		done <- c.Run(t.Context(), g.address, cmd)
	}()
	select {
	case <-started:
	case <-time.After(patience):
		t.Fatal("the first command has not begun")
	}
	err := c.Run(t.Context(), g.address, Command{Args: []string{"true"}})
	if err == nil || !strings.Contains(err.Error(), "open failed") {
		t.Errorf("the second session: %v", err)
	}
	feed.Close()
	if err := <-done; err != nil {
		t.Errorf("the first session: %v", err)
	}
}

// A guest that is not reached is an error about the connection.
func TestNotReached(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	err = newClient(t).Run(t.Context(), l.Addr().String(), Command{Args: []string{"true"}})
	if err == nil || !strings.Contains(err.Error(), "connect by SSH") || errors.Is(err, ErrUnknownResult) {
		t.Errorf("got %v", err)
	}
}
