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

// MinRateBody is the body of a request whose client may take as long as it keeps up a rate, and never pauses longer
// than the initial grace time. A client that is slower, or is slow while too many others are, gets an error
// that reports it.
type MinRateBody struct {
	request           *http.Request
	controller        *http.ResponseController
	gracePeriod       time.Duration
	minBytesPerSecond int64
	startedAt         time.Time
	readBytes         int64
	slowTimer         *time.Timer

	mu          sync.Mutex // guards the fields below
	releaseSlot func()     // of the slot among the slow clients; nil: it has none
	refusedErr  error      // why it got no slot
	closed      bool
}

// NewMinRateBody wraps the body of a request. Its Close must be called before the response is written.
func NewMinRateBody(w http.ResponseWriter, r *http.Request, grace time.Duration, perSecond int64) *MinRateBody {
	b := &MinRateBody{
		request: r, controller: http.NewResponseController(w), gracePeriod: grace, minBytesPerSecond: perSecond,
		startedAt: time.Now(),
	}
	b.slowTimer = time.AfterFunc(slowAfter, b.countSlow)
	b.extendDeadline()
	return b
}

// countSlow counts a client whose body is incomplete among the slow ones.
func (b *MinRateBody) countSlow() {
	limit, _ := b.request.Context().Value(slowClientsKey{}).(*ConcurrencyLimit)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if b.releaseSlot, b.refusedErr = limit.Acquire(b.request); b.refusedErr != nil {
		_ = b.controller.SetReadDeadline(time.Now())
	}
}

// extendDeadline sets the deadline for the client's next bytes.
func (b *MinRateBody) extendDeadline() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refusedErr == nil {
		now := time.Now()
		left := b.gracePeriod + transferTime(b.readBytes, b.minBytesPerSecond) - now.Sub(b.startedAt)
		_ = b.controller.SetReadDeadline(now.Add(min(left, b.gracePeriod)))
	}
}

// Read implements io.Reader.
func (b *MinRateBody) Read(p []byte) (int, error) {
	n, err := b.request.Body.Read(p)
	b.readBytes += int64(n)
	switch {
	case err == nil:
		b.extendDeadline()
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = b.slowError()
	}
	return n, err
}

func (b *MinRateBody) slowError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refusedErr != nil {
		return b.refusedErr
	}
	return farm.Errorf(farm.CodeInvalid, "The request body was sent too slowly: %d bytes in %.0f seconds", b.readBytes,
		time.Since(b.startedAt).Seconds())
}

// Close ends the reading. It removes the connection's deadline, on which the server's check for disconnected
// clients would fail.
func (b *MinRateBody) Close() error {
	b.slowTimer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	if b.releaseSlot != nil {
		b.releaseSlot()
	}
	return b.controller.SetReadDeadline(time.Time{})
}

var _ io.ReadCloser = (*MinRateBody)(nil)
