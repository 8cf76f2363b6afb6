package rest

import (
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
)

// SplitPlainHTTP separates connections to a TLS port that speak plain HTTP from those that speak TLS. secure is
// for a server with TLS. It must be served: a plain connection is detected when its first bytes are read.
// Closing secure closes both.
func SplitPlainHTTP(l net.Listener) (secure, plain net.Listener) {
	p := &plainListener{addr: l.Addr(), conns: make(chan net.Conn), closed: make(chan struct{})}
	return secureListener{l, p}, p
}

type secureListener struct {
	net.Listener
	plain *plainListener
}

// Accept implements net.Listener.
func (l secureListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &sniffedConn{Conn: c, plain: l.plain}, nil
}

// Close implements net.Listener.
func (l secureListener) Close() error {
	_ = l.plain.Close()
	return l.Listener.Close()
}

// sniffedConn passes itself to the plain listener when it does not begin with TLS.
type sniffedConn struct {
	net.Conn
	plain *plainListener

	mu            sync.Mutex // guards the fields below
	sniffed       bool
	passedToPlain bool // the plain listener has it
}

// Read implements net.Conn.
func (c *sniffedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sniffed || n == 0 {
		return n, err
	}
	c.sniffed = true
	if b[0] < 'A' || b[0] > 'Z' { // HTTP methods begin with such a letter, TLS records do not
		return n, err
	}
	head := append([]byte(nil), b[:n]...)
	select {
	case c.plain.conns <- &headConn{Conn: c.Conn, readAhead: head}:
		c.passedToPlain = true
	case <-c.plain.closed:
	}
	return 0, io.EOF
}

// Close implements net.Conn.
func (c *sniffedConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.passedToPlain {
		return nil
	}
	return c.Conn.Close()
}

// headConn is a connection with bytes that were already read.
type headConn struct {
	net.Conn
	readAhead []byte
}

// Read implements net.Conn.
func (c *headConn) Read(b []byte) (int, error) {
	if len(c.readAhead) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.readAhead)
	c.readAhead = c.readAhead[n:]
	return n, nil
}

// plainListener returns connections that were already accepted.
type plainListener struct {
	addr      net.Addr
	conns     chan net.Conn
	closeOnce sync.Once
	closed    chan struct{}
}

// Accept implements net.Listener.
func (l *plainListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *plainListener) Close() error {
	l.closeOnce.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *plainListener) Addr() net.Addr { return l.addr }

// NewPlainHTTPServer returns a server for plain HTTP requests to a TLS port. It redirects read-only requests to
// https and refuses all others, since their body and credentials would be sent in clear text.
func NewPlainHTTPServer() *http.Server {
	s := &http.Server{
		Handler:           http.HandlerFunc(redirectToHTTPS),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
		MaxHeaderBytes:               16 << 10,
		DisableGeneralOptionsHandler: true,
	}
	s.SetKeepAlivesEnabled(false)
	return s
}

func redirectToHTTPS(w http.ResponseWriter, r *http.Request) {
	if isReadOnly(r) && r.Host != "" {
		http.Redirect(w, r, "https://"+r.Host+r.URL.RequestURI(), http.StatusTemporaryRedirect) //nolint:gosec // to the requested host
		return
	}
	writeEnvelope(w, http.StatusBadRequest, api.StatusFail, "This port speaks TLS: send the request to https://"+r.Host,
		nil)
}
