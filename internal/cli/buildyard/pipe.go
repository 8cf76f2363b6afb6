package buildyard

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// pipeURL is the address of requests through a pipe. No connection to it is ever made.
const pipeURL = "http://127.0.0.1"

// pipe is a listener that only this process can connect to. Its server authorizes callers as on the
// port for programs of this machine.
type pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

var _ net.Listener = (*pipe)(nil)

func newPipe() *pipe { return &pipe{conns: make(chan net.Conn), closed: make(chan struct{})} }

// Dial connects to the server; the arguments have the form of a net.Dialer's.
func (p *pipe) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- pipeConn{far}:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements net.Listener.
func (p *pipe) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, http.ErrServerClosed
	}
}

// Close implements net.Listener.
func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipe) Addr() net.Addr { return pipeAddr }

// pipeAddr is the address of this process: a caller through the pipe is on this machine.
var pipeAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}

// pipeConn is the server's end of a connection.
type pipeConn struct{ net.Conn }

// RemoteAddr implements net.Conn.
func (pipeConn) RemoteAddr() net.Addr { return pipeAddr }
