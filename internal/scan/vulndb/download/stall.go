package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// Get sends a request, and fails when the server sends nothing for so long, for the header or for the body.
func Get(ctx context.Context, client *http.Client, url string, head http.Header, stall time.Duration,
) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		cancel(err)
		return nil, err
	}
	shown := req.URL.Redacted()
	silent := time.AfterFunc(stall, func() {
		cancel(fmt.Errorf("download stalled: %s sent nothing for %s", shown, stall))
	})
	req.Header = head
	req.Header.Set("User-Agent", "buildyard")
	resp, err := client.Do(req)
	if err != nil {
		silent.Stop()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = &stallReader{
		ReadCloser: resp.Body, ctx: ctx, stallTimer: silent, stallTimeout: stall, cancel: cancel,
	}
	return resp, nil
}

// stallReader is a body whose reads fail when no data comes.
type stallReader struct {
	io.ReadCloser
	ctx          context.Context // that of the body's request
	stallTimer   *time.Timer
	stallTimeout time.Duration
	cancel       context.CancelCauseFunc
	closed       atomic.Bool
}

func (w *stallReader) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if n > 0 {
		w.stallTimer.Reset(w.stallTimeout)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(w.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (w *stallReader) Close() error {
	if w.closed.Swap(true) {
		return nil
	}
	w.stallTimer.Stop()
	err := w.ReadCloser.Close()
	w.cancel(nil)
	return err
}
