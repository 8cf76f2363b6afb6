package s3store

import (
	"context"
	"fmt"
	"net"
	"time"
)

// stallLimit is how long a connection to the server may transfer nothing in either direction. Then it is closed, and
// the request fails: without the limit a body that stops in the middle would hold its reader until the registry ends.
// It is longer than an idle connection stays open.
const stallLimit = 75 * time.Second

var dialer = net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}

func dialWithStallLimit(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connect to the S3 server: %w", err)
	}
	return stallLimitedConn{conn}, nil
}

// stallLimitedConn fails a read or write during which nothing was transferred for stallLimit.
type stallLimitedConn struct{ net.Conn }

// Read implements net.Conn.
func (c stallLimitedConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(stallLimit)); err != nil {
		return 0, fmt.Errorf("limit the time of a read: %w", err)
	}
	return c.Conn.Read(p) //nolint:wrapcheck // callers compare io.EOF
}

// Write implements net.Conn. It also extends the time of a read that waits for the response.
func (c stallLimitedConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(stallLimit)); err != nil {
		return 0, fmt.Errorf("limit the time of a write: %w", err)
	}
	return c.Conn.Write(p) //nolint:wrapcheck // the transport adds the request
}
