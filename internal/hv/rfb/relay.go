package rfb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Time limits of the two handshakes. A viewer's user may type the password during it.
const (
	serverTimeout = 15 * time.Second
	viewerTimeout = time.Minute
)

// Unavailable is the reason that a viewer gets when the server cannot be used. It names no cause,
// since the viewer is not authenticated.
const Unavailable = "The screen of this VM is not available; the log of its node says why."

// Passwords of a relayed screen. Both are secrets. Only their first 8 bytes count.
type Passwords struct {
	Viewer string // viewers have to know it; "" admits every viewer
	Server string // of the VNC server; "" = the server asks for none
}

// Relay logs in at a VNC server, authenticates a viewer and copies between the two until either
// closes its connection or ctx ends, which is not an error. It closes both connections. A viewer is
// refused with a reason when the server cannot be used.
func Relay(ctx context.Context, viewer, server net.Conn, p Passwords) error {
	defer viewer.Close()
	defer server.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = viewer.Close()
		_ = server.Close()
	})
	defer stop()

	if err := handshake(viewer, server, p); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("relay a VNC viewer: %w", err)
	}

	copyBoth(viewer, server)
	return nil
}

// handshake logs in first, since only then every version of viewer can be refused with a reason.
func handshake(viewer, server net.Conn, p Passwords) error {
	_ = server.SetDeadline(time.Now().Add(serverTimeout))
	err := LogIn(server, p.Server)
	_ = viewer.SetDeadline(time.Now().Add(viewerTimeout))
	if err != nil {
		return errors.Join(err, RefuseViewer(viewer, Unavailable))
	}

	if err := AcceptViewer(viewer, p.Viewer); err != nil {
		return err
	}
	return errors.Join(viewer.SetDeadline(time.Time{}), server.SetDeadline(time.Time{}))
}

// copyBoth copies in both directions until one of them ends. RFB has no half-closed connections.
func copyBoth(a, b net.Conn) {
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = a.Close()
			_ = b.Close()
			done <- struct{}{}
		}()
	}
	<-done
	<-done
}
