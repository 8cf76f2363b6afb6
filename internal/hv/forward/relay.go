package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/hv/rfb"
)

const (
	maxGuestConns = 1000 // open connections to the guest's ports
	maxViewers    = 8    // open connections to the screen

	dialTimeout   = 10 * time.Second
	refuseTimeout = 10 * time.Second
	acceptPause   = 50 * time.Millisecond // after a failed accept, and after a viewer: slows down guesses of a password
)

// accept joins the connections to a port until the listener is closed.
func (s *server) accept(ctx context.Context, l listener) {
	slots, relay := s.guests, s.relayToGuest
	if l.isVNC {
		slots, relay = s.viewers, s.relayToScreen
	}
	for {
		c, err := l.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.log.Warn("accept connection failed", "address", l.Addr().String(), "error", err)
			pause(ctx)
			continue
		}
		select {
		case slots <- struct{}{}:
			s.open.Go(func() {
				defer func() { <-slots }()
				relay(ctx, l, c)
			})
		default:
			s.log.Warn("connection limit reached", "address", l.Addr().String(), "limit", cap(slots))
			abort(c)
		}
		if l.isVNC || len(slots) == cap(slots) {
			pause(ctx)
		}
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(acceptPause):
	}
}

// abort closes a connection so that its client sees an error and not the end of a stream.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// relayToGuest joins a connection to the guest's port.
func (s *server) relayToGuest(ctx context.Context, l listener, c *net.TCPConn) {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	guest, err := s.dialer.DialGuest(dialing, l.rule.GuestPort)
	if err != nil {
		s.log.Warn("connect to guest port failed", "rule", l.rule.Name, "guest_port", l.rule.GuestPort, "error", err)
		abort(c)
		return
	}

	stop := context.AfterFunc(ctx, func() {
		_ = c.Close()
		_ = guest.Close()
	})
	defer stop()
	relay(c, guest)
}

// relay copies in both directions and passes on the end of each. It closes both connections when
// both directions have ended or one has failed.
func relay(client, guest GuestConn) {
	var directions sync.WaitGroup
	forward := func(to, from GuestConn) {
		_, err := io.Copy(to, from) // spliced by the kernel between two TCP connections
		if err == nil {
			err = to.CloseWrite()
		}
		if err != nil { // nothing more arrives in the other direction
			_ = client.Close()
			_ = guest.Close()
		}
	}
	directions.Go(func() { forward(guest, client) })
	directions.Go(func() { forward(client, guest) })
	directions.Wait()
	_ = client.Close()
	_ = guest.Close()
}

// relayToScreen joins a viewer to the VNC server of the VM.
func (s *server) relayToScreen(ctx context.Context, _ listener, c *net.TCPConn) {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	screen, password, err := s.dialer.DialScreen(dialing)
	if err != nil {
		defer func() { _ = c.Close() }() // the viewer has its reason
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		defer stop()
		s.log.Warn("connect to VNC server failed", "error", err)
		_ = c.SetDeadline(time.Now().Add(refuseTimeout))
		_ = rfb.RefuseViewer(c, rfb.Unavailable)
		return
	}
	err = rfb.Relay(ctx, c, screen, rfb.Passwords{Viewer: s.viewerPassword, Server: password})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("relay VNC viewer failed", "viewer", c.RemoteAddr().String(), "error", err)
	}
}
