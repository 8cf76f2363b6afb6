package rest

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
)

// Time limits for a client that reads a response.
const (
	slowAfter   = time.Second      // a longer write counts its client among the slow ones
	readerGrace = 10 * time.Second // for a slow client, in addition to the time for its bytes
	readerRate  = 16 << 10         // minimum rate in bytes a second
	writeStep   = 256 << 10        // bytes that are written under one deadline
)

var errSlowReaders = errors.New("the client reads too slowly, and the limit of slow clients is reached")

// LimitSlowClients returns a listener that cuts connections whose clients do not read what is written to them.
// It cuts immediately when too many are slow at a time, and else below readerRate. Handlers need not set
// deadlines. With byAddress the clients of one address have a share of limit; behind a reverse proxy all come
// from its address.
func LimitSlowClients(l net.Listener, limit *ConcurrencyLimit, byAddress bool) net.Listener {
	return slowListener{l, limit, byAddress}
}

type slowListener struct {
	net.Listener
	limit     *ConcurrencyLimit
	byAddress bool
}

// Accept implements net.Listener.
func (l slowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	out := &slowConn{Conn: c, limit: l.limit}
	if l.byAddress {
		out.callerName = "address " + auth.LimiterKey(c.RemoteAddr().String())
	}
	return out, nil
}

// slowConn bounds the time of writes.
type slowConn struct {
	net.Conn
	limit      *ConcurrencyLimit
	callerName string

	mu           sync.Mutex // guards the fields below; writers hold it while they write
	quickUntil   time.Time  // the deadline that was set for quick writes
	slowSince    time.Time  // start of slowness; zero: not slow
	writtenBytes int64      // bytes since then
}

var _ io.ReaderFrom = (*slowConn)(nil)

// Write implements net.Conn.
func (c *slowConn) Write(b []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n < len(b) && err == nil {
		var m int
		m, err = c.writeStep(b[n:min(len(b), n+writeStep)])
		n += m
	}
	return n, err
}

// writeStep writes a part, with the deadline of a quick or of a slow connection.
func (c *slowConn) writeStep(b []byte) (int, error) {
	c.setQuickDeadline()
	n, err := c.Conn.Write(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		c.slowSince = time.Time{}
		return n, err
	}
	release, err := c.limit.AcquireFor(c.callerName)
	if err != nil {
		return n, errSlowReaders
	}
	defer release()
	if c.slowSince.IsZero() {
		c.slowSince, c.writtenBytes = time.Now(), 0
	}
	c.quickUntil = time.Time{} // the next quick write needs a new deadline
	_ = c.Conn.SetWriteDeadline(c.slowSince.Add(readerGrace + transferTime(c.writtenBytes+int64(len(b)), readerRate)))
	m, err := c.Conn.Write(b[n:])
	c.writtenBytes += int64(n + m)
	return n + m, err
}

// setQuickDeadline ensures that the next write ends within slowAfter, or little more: the deadline is not set
// again for each of many writes.
func (c *slowConn) setQuickDeadline() {
	now := time.Now()
	if c.quickUntil.Sub(now) < slowAfter {
		c.quickUntil = now.Add(2 * slowAfter)
		_ = c.Conn.SetWriteDeadline(c.quickUntil)
	}
}

// ReadFrom lets the system send a file directly. The transfer uses no memory, so its readers are not counted
// among the slow ones.
func (c *slowConn) ReadFrom(src io.Reader) (sum int64, err error) {
	to, ok := c.Conn.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{c}, src)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quickUntil = time.Time{}
	bounded, ok := src.(*io.LimitedReader)
	if !ok {
		bounded = &io.LimitedReader{R: src, N: math.MaxInt64}
	}
	part := &io.LimitedReader{R: bounded.R}
	for bounded.N > 0 {
		part.N = min(bounded.N, writeStep)
		_ = c.Conn.SetWriteDeadline(time.Now().Add(readerGrace + transferTime(part.N, readerRate)))
		n, err := to.ReadFrom(part)
		sum, bounded.N = sum+n, bounded.N-n
		if err != nil || part.N > 0 { // the source ended early
			return sum, err
		}
	}
	return sum, nil
}

// SetWriteDeadline implements net.Conn. Deadlines of handlers are ignored: each write has its own.
func (*slowConn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline implements net.Conn, for reads.
func (c *slowConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// CloseWrite closes the writing side, which net/http does before it closes a connection.
func (c *slowConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// transferTime is how long n bytes take at a rate.
func transferTime(n, perSecond int64) time.Duration {
	return time.Duration(float64(n) / float64(perSecond) * float64(time.Second))
}
