// Package push sends the findings of the host scanner to the controller of a build cloud, which stores the last
// report of each node.
//
// It is not the webhook, which reports changes: it always sends everything, and changes made since a report are
// part of the next one. It never makes the scanner wait.
//
// Invariant: the last change is sent, however many attempts fail before; without changes, no goroutine wakes
// up.
package push

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/retry"
	"github.com/buildyard/buildyard/internal/scan/host"
)

// Limits of reports, and their intervals.
const (
	settleTime       = 2 * time.Second // after a change, to include further changes
	sendTimeout      = time.Minute     // of one try
	minRetryDelay    = 5 * time.Second // after a failure
	maxRetryDelay    = 10 * time.Minute
	maxResponseBytes = 64 << 10 // of a response
)

// Target is the address and the credentials to which the findings are sent.
type Target struct {
	URL       string // of the call
	Node      string // id of the node
	Method    string
	Authorize func(*http.Request) error
	Client    *http.Client
}

// Options configures a sender.
type Options struct {
	HostName string // of this machine
	Version  string // of the program
	Interval time.Duration
	// Target is called before each try, since the node's identity may change.
	Target func() (Target, error)
	Log    *slog.Logger

	settleTime, retryDelay time.Duration // for tests; 0 means the default
}

// Sender sends findings. It is created with New.
type Sender struct {
	opts    Options
	host    *host.Host
	results metric.Results
	wake    chan struct{} // has one element when there is something to send

	mu     sync.Mutex // guards the fields below
	status api.HostPush
}

// New makes a sender.
func New(o Options) *Sender {
	o.settleTime, o.retryDelay = cmp.Or(o.settleTime, settleTime), cmp.Or(o.retryDelay, minRetryDelay)
	return &Sender{opts: o, wake: make(chan struct{}, 1)}
}

// SetHost sets the host whose findings are sent. It must be called before Run.
func (s *Sender) SetHost(h *host.Host) { s.host = h }

// Notify is called when packages or findings were added or removed.
func (s *Sender) Notify(host.Event) { s.wakeUp() }

// NotifyEnd is called when a full scan, a comparison with a database or a reset has ended.
func (s *Sender) NotifyEnd(host.Trigger) { s.wakeUp() }

func (s *Sender) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run sends until ctx ends.
func (s *Sender) Run(ctx context.Context) {
	gap := retry.New(s.opts.retryDelay, maxRetryDelay)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		_ = retry.Sleep(ctx, s.opts.settleTime)
		select { // changes since then are part of the same report
		case <-s.wake:
		default:
		}
		if ctx.Err() != nil {
			return
		}
		err := s.trySend(ctx)
		switch {
		case err == nil:
			gap.Reset()
			_ = retry.Sleep(ctx, s.opts.Interval-s.opts.settleTime)
		case ctx.Err() == nil:
			s.wakeUp() // also after a refusal: a wrong clock is corrected eventually
			_ = retry.Sleep(ctx, max(gap.Next(), s.opts.Interval-s.opts.settleTime))
		}
	}
}

// trySend sends once, and records the result.
func (s *Sender) trySend(ctx context.Context) error {
	began := time.Now().UTC()
	to, err := s.opts.Target()
	if err == nil {
		err = s.send(ctx, to)
	}
	if ctx.Err() != nil {
		return err
	}
	s.results.Observe(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.status.Error
	s.status.Tried, s.status.Error = &began, ""
	if to.Node != "" {
		s.status.Node, s.status.URL = to.Node, redactAddress(to.URL)
	}
	if err != nil {
		s.status.Error = err.Error()
		if was != s.status.Error {
			s.opts.Log.WarnContext(ctx, "sending host scan results to the controller failed", "error", err)
		}
		return err
	}
	s.status.Sent = &began
	s.opts.Log.DebugContext(ctx, "host scan results sent to the controller", "node_id", to.Node)
	return nil
}

// redactAddress returns an address without its secret parts.
func redactAddress(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	u.RawQuery = ""
	return u.Redacted()
}

// send sends everything once.
func (s *Sender) send(ctx context.Context, to Target) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	var body bytes.Buffer
	if err := s.writeBody(ctx, &body, to.Node); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, to.Method, to.URL, &body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("User-Agent", "buildyard-hostscan")
	if to.Authorize != nil {
		if err := to.Authorize(req); err != nil {
			return err
		}
	}
	resp, err := to.Client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return fmt.Errorf("the controller cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	defer to.Client.CloseIdleConnections() // the next report is far in the future
	return checkResponse(resp)
}

// checkResponse maps a response to an error.
func checkResponse(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
	var e api.Envelope[json.RawMessage]
	if json.Unmarshal(raw, &e) != nil || e.Status == "" {
		return errors.New("not a Buildyard controller: " + resp.Status)
	}
	if resp.StatusCode == http.StatusOK && e.Status == api.StatusOK {
		return nil
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return errors.New("the controller does not accept the node credential or API key")
	case http.StatusOK:
		return fmt.Errorf("the controller responded: %s (check that push-node is the ID of a node)", e.Message)
	}
	return fmt.Errorf("the controller responded: %s", e.Message)
}

// Status returns the status of the sender.
func (s *Sender) Status() *api.HostPush {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.status
	return &out
}

// Families are the metrics of the sender.
func (s *Sender) Families() []metric.Family {
	return []metric.Family{
		s.results.Family("buildyard_hostscan_pushes_total", "Attempts to send host scan results to the controller"),
		metric.GaugeFamily("buildyard_hostscan_last_push_timestamp_seconds",
			"Time when host scan results were last sent to the controller (Unix seconds); 0 before the first time",
			func() float64 {
				if at := s.Status().Sent; at != nil {
					return float64(at.UnixMilli()) / 1e3
				}
				return 0
			}),
	}
}
