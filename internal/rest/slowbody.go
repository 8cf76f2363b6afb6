package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Time limits for a client that sends a body.
const (
	bodyGrace = 5 * time.Second // in addition to the time for its bytes
	bodyRate  = 32 << 10        // minimum rate in bytes a second
)

type slowClientsKey struct{}

// WithSlowClients returns the context of a port, for the BaseContext of its http.Server. It bounds how many
// slow clients the port serves at a time.
func WithSlowClients(ctx context.Context, limit *ConcurrencyLimit) context.Context {
	return context.WithValue(ctx, slowClientsKey{}, limit)
}

// Body is the body of a request whose client may take as long as it keeps up a rate, and never pauses longer
// than the initial grace time. A client that is slower, or is slow while too many others are, gets an error
// that reports it.
type Body struct {
	r     *http.Request
	conn  *http.ResponseController
	grace time.Duration
	rate  int64
	began time.Time
	read  int64
	slow  *time.Timer

	mu      sync.Mutex // guards what follows
	release func()     // of the slot among the slow clients; nil: it has none
	refused error      // why it got no slot
	closed  bool
}

// NewBody wraps the body of a request. Its Close must be called before the response is written.
func NewBody(w http.ResponseWriter, r *http.Request, grace time.Duration, perSecond int64) *Body {
	b := &Body{r: r, conn: http.NewResponseController(w), grace: grace, rate: perSecond, began: time.Now()}
	b.slow = time.AfterFunc(slowAfter, b.count)
	b.extend()
	return b
}

// count counts a client whose body is incomplete among the slow ones.
func (b *Body) count() {
	limit, _ := b.r.Context().Value(slowClientsKey{}).(*ConcurrencyLimit)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if b.release, b.refused = limit.Acquire(b.r); b.refused != nil {
		_ = b.conn.SetReadDeadline(time.Now())
	}
}

// extend sets the deadline for the client's next bytes.
func (b *Body) extend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refused == nil {
		now := time.Now()
		left := b.grace + bytesTime(b.read, b.rate) - now.Sub(b.began)
		_ = b.conn.SetReadDeadline(now.Add(min(left, b.grace)))
	}
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	n, err := b.r.Body.Read(p)
	b.read += int64(n)
	switch {
	case err == nil:
		b.extend()
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = b.tooSlow()
	}
	return n, err
}

func (b *Body) tooSlow() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refused != nil {
		return b.refused
	}
	return farm.Errorf(farm.CodeInvalid, "The request body was sent too slowly: %d bytes in %.0f seconds", b.read,
		time.Since(b.began).Seconds())
}

// Close ends the reading. It removes the connection's deadline, on which the server's check for disconnected
// clients would fail.
func (b *Body) Close() error {
	b.slow.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	if b.release != nil {
		b.release()
	}
	return b.conn.SetReadDeadline(time.Time{})
}

var _ io.ReadCloser = (*Body)(nil)
