package guestssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// dial connects to the guest and logs in.
func (c *Client) dial(ctx context.Context, address string) (*ssh.Client, error) {
	d := net.Dialer{
		Timeout: c.limits.dial,
		// ends the commands of a guest that has disappeared
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 6},
	}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect by SSH: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(c.limits.handshake))
	link, channels, requests, err := ssh.NewClientConn(conn, address, c.config())
	if err == nil && !stop() {
		_ = conn.Close()
		err = ctx.Err()
	}
	if err != nil {
		return nil, c.loginError(ctx, err)
	}
	_ = conn.SetDeadline(time.Time{})
	return ssh.NewClient(link, channels, requests), nil
}

// loginError explains a failed handshake.
func (c *Client) loginError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case strings.Contains(err.Error(), "unable to authenticate"): // the library has no value for it
		return fmt.Errorf("%w: user %q or the password is wrong, or the guest takes no passwords: set the guest user "+
			"and password of the node to those of the template, or install a guest agent in it", ErrLogin,
			c.options.User)
	}
	return fmt.Errorf("SSH handshake: %w; is an SSH server enabled in the guest?", err)
}

func (c *Client) config() *ssh.ClientConfig {
	password := c.options.Password.Reveal
	return &ssh.ClientConfig{
		User: c.options.User,
		Auth: []ssh.AuthMethod{
			ssh.PasswordCallback(func() (string, error) { return password(), nil }),
			// macOS asks for passwords in this way
			ssh.KeyboardInteractive(func(_, _ string, questions []string, echo []bool) ([]string, error) {
				answers := make([]string, len(questions))
				for i := range questions {
					if echo[i] {
						return nil, errors.New("the guest asks for something else than a password")
					}
					answers[i] = password()
				}
				return answers, nil
			}),
		},
		// A new guest has a new key, or that of all VMs of its template, and nothing has told it to this
		// host. The connection does not leave the host's own NAT network, and the password is the
		// template's, which the guest knows.
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), //nolint:gosec // see above
	}
}

// session is a session and its connection.
type session struct {
	*ssh.Session
	conn *ssh.Client
}

// openSession returns a session on the kept connection, or on a new one when that is broken.
func (c *Client) openSession(ctx context.Context, address string) (session, error) {
	select {
	case c.connLock <- struct{}{}:
		defer func() { <-c.connLock }()
	case <-ctx.Done():
		return session{}, ctx.Err()
	}
	if c.conn != nil && c.address == address {
		s, err := c.newSession(ctx, c.conn)
		if err == nil || !isBroken(err) || ctx.Err() != nil {
			return s, err
		}
	}

	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
	conn, err := c.dial(ctx, address)
	if err != nil {
		return session{}, err
	}
	c.conn, c.address = conn, address
	return c.newSession(ctx, conn)
}

// isBroken reports whether a connection has opened no session because it does not work, and not
// because the guest allows no more sessions.
func isBroken(err error) bool {
	_, refused := errors.AsType[*ssh.OpenChannelError](err)
	return !refused
}

// newSession opens a session. The library waits for the guest without a limit, so that the connection
// is closed when it does not answer in time. Other sessions of the connection continue when ctx ends.
func (c *Client) newSession(ctx context.Context, conn *ssh.Client) (session, error) {
	type result struct {
		session *ssh.Session
		err     error
	}
	opened := make(chan result, 1)
	stuck := time.AfterFunc(c.limits.session, func() { _ = conn.Close() })
	go func() {
		s, err := conn.NewSession()
		stuck.Stop()
		opened <- result{s, err}
	}()

	select {
	case r := <-opened:
		if r.err != nil {
			return session{}, fmt.Errorf("open an SSH session: %w", r.err)
		}
		return session{r.session, conn}, nil
	case <-ctx.Done():
		go func() {
			if r := <-opened; r.err == nil {
				_ = r.session.Close()
			}
		}()
		return session{}, ctx.Err()
	}
}
