package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"
)

// Stream is a response of any length. The caller owns it and closes it. It has no timeout but its context's.
type Stream struct {
	io.ReadCloser
	Size int64  // bytes to come; -1 when unknown
	Type string // media type, such as text/plain
}

// open makes a call whose successful response is not an envelope.
func (s *service) open(ctx context.Context, c call) (*http.Response, error) {
	var resp *http.Response
	err := s.repeat(ctx, c, func() (err error) {
		if resp, err = s.begin(ctx, c); err != nil {
			return err
		}
		kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		good := resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent
		if good && (kind != "application/json" || resp.Header.Get("Accept-Ranges") != "") { // a file may hold JSON
			return nil
		}
		defer func() { _ = resp.Body.Close() }()
		if err := s.decode(ctx, resp, nil); err != nil {
			return err
		}
		return s.unexpectedResponse(resp)
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// begin sends a request whose response must begin within the timeout of a try. The body lives as long as ctx.
func (s *service) begin(ctx context.Context, c call) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	limit := time.AfterFunc(s.timeout, func() { cancel(context.DeadlineExceeded) })
	resp, err := s.send(ctx, c, nil)
	if !limit.Stop() || err != nil {
		if err == nil {
			_ = resp.Body.Close()
			err = s.unreachable(c, context.Cause(ctx))
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = &body{resp.Body, cancel}
	return resp, nil
}

// body cancels its request's context when it is closed.
type body struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// stream makes a call whose response is raw bytes.
func (s *service) stream(ctx context.Context, c call) (*Stream, error) {
	resp, err := s.open(ctx, c) //nolint:bodyclose // the reader of the stream closes it
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return &Stream{ReadCloser: resp.Body, Size: resp.ContentLength, Type: kind}, nil
}

// longReturn is the longest pause before a broken stream is resumed.
const longReturn = 10 * time.Second

// errLeft is the end of a stream whose reader has left the loop.
var errLeft = errors.New("stream reader stopped")

// again restarts a stream whenever it breaks, until ctx ends, its reader leaves it or the error is permanent.
// If the stream has never begun, the error is returned immediately.
func again(ctx context.Context, onBreak func(error), stream func() (began bool, err error)) error {
	once := false
	for wait := firstPause; ; wait = min(2*wait, longReturn) {
		at := time.Now()
		began, err := stream()
		once = once || began
		switch {
		case errors.Is(err, errLeft):
			return nil
		case ctx.Err() != nil:
			return ended(ctx, err)
		case !once || !interrupted(err):
			return err
		}
		if onBreak != nil {
			onBreak(err)
		}
		if time.Since(at) > longReturn {
			wait = firstPause
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// interrupted reports whether a stream broke temporarily.
func interrupted(err error) bool {
	return transient(err) || errors.Is(err, ErrForeign) || errors.Is(err, ErrInternal)
}

// maxLine bounds a line of a stream, in bytes.
const maxLine = 16 << 20

// linesOf reads the lines of a stream. An incomplete last line is dropped.
func linesOf(from io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	lines.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		n, line, err := bufio.ScanLines(data, false)
		if n == 0 && atEOF {
			n = len(data)
		}
		return n, line, err
	})
	return lines
}

// sizeIn reads a size from a header; -1 when it has none.
func sizeIn(h http.Header, name string) int64 {
	n, err := strconv.ParseInt(h.Get(name), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}
