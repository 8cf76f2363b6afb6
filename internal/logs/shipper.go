package logs

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/retry"
)

const (
	maxWaitingBytes  = 4 << 20 // bytes of waiting lines
	maxWaitingLines  = 10000   // and their number
	maxLineBytes     = 64 << 10
	batchLines       = 500                    // that are sent in one request
	batchBytes       = 256 << 10              // and their bytes; twice that as JSON, and proxies accept 1 MiB
	batchDelay       = 500 * time.Millisecond // how long a line waits for others
	sendTimeout      = 15 * time.Second
	finalSendTimeout = 2 * time.Second // to send the rest when the process ends
	minBackoff       = time.Second
	maxBackoff       = 30 * time.Second
)

// Options define whose log is sent, and how.
type Options struct {
	MachineName    string // name of this machine
	MachineAddress string // its address
	// Send sends rows to the address passed to Ship. An error of CodeInvalid, CodeRefused or
	// CodeTooLarge means that they are never accepted; after any other error they are sent again.
	Send func(ctx context.Context, to string, rows []api.LogRow) (api.LogAppendResult, error)
}

// Shipper collects lines and sends them. Lines wait until Ship or Drop is called. Its methods may
// be called from many goroutines.
type Shipper struct {
	opts    Options
	wake    chan struct{} // has one element when there may be something to send
	metrics metrics

	mu             sync.Mutex // guards the fields below
	destination    string     // "": not known yet
	discarding     bool       // lines are dropped
	queue          []logLine
	queuedBytes    int // of the texts in the queue
	unreportedLost int // lines before those of the queue that no row has reported yet
}

// logLine is one line of a log.
type logLine struct {
	service string
	text    string
}

// New returns a shipper. Run drives it.
func New(o Options) *Shipper { return &Shipper{opts: o, wake: make(chan struct{}, 1)} }

// ShipTo sends lines to an address from now on, including those that wait.
func (s *Shipper) ShipTo(to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.destination == to && !s.discarding {
		return
	}
	s.destination, s.discarding = to, false
	s.wakeUp()
}

// Discard discards lines from now on, including those that wait.
func (s *Shipper) Discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.discarding {
		return
	}
	s.discarding, s.queue, s.queuedBytes, s.unreportedLost = true, nil, 0, 0
	s.wakeUp()
}

func (s *Shipper) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Tee returns a writer that writes to w and also sends each written line as one of a service.
func (s *Shipper) Tee(w io.Writer, service string) io.Writer { return &teeWriter{w, s, service} }

type teeWriter struct {
	out     io.Writer
	shipper *Shipper
	service string
}

func (t *teeWriter) Write(p []byte) (int, error) {
	t.shipper.addLine(t.service, p)
	return t.out.Write(p)
}

// addLine queues a line. It only ever waits for the mutex, which is never held during work or I/O.
func (s *Shipper) addLine(service string, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.discarding {
		return
	}
	next := logLine{service, strings.TrimSuffix(string(p[:min(len(p), maxLineBytes)]), "\n")}
	s.queue = append(s.queue, next)
	s.queuedBytes += len(next.text)
	for s.queuedBytes > maxWaitingBytes || len(s.queue) > maxWaitingLines {
		s.dropOldest()
		s.unreportedLost++
		s.metrics.dropped.Inc()
	}
	s.wakeUp()
}

// dropOldest removes the oldest line.
func (s *Shipper) dropOldest() logLine {
	first := s.queue[0]
	s.queue[0] = logLine{}
	s.queue = s.queue[1:]
	s.queuedBytes -= len(first.text)
	return first
}

// Run sends lines until ctx ends, and then the rest once more.
func (s *Shipper) Run(ctx context.Context) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
		_ = retry.Sleep(ctx, batchDelay)
		for {
			b := s.nextBatch()
			if len(b.lines) == 0 {
				break
			}
			if ctx.Err() != nil {
				s.sendFinal(ctx, b)
				return
			}
			s.sendBatch(ctx, b)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// lineBatch contains the lines of one request.
type lineBatch struct {
	destination string
	lostBefore  int // lines that were lost before these
	lines       []logLine
}

// nextBatch returns the next lines to send.
func (s *Shipper) nextBatch() (b lineBatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.destination == "" || s.discarding || len(s.queue) == 0 {
		return b
	}
	b.destination, b.lostBefore, s.unreportedLost = s.destination, s.unreportedLost, 0
	for bytes := 0; len(s.queue) > 0 && len(b.lines) < batchLines && bytes < batchBytes; {
		next := s.dropOldest()
		bytes += len(next.text)
		b.lines = append(b.lines, next)
	}
	if len(s.queue) == 0 {
		s.queue = nil // releases the array
	}
	return b
}

// batchRows returns the rows of a batch; the first one reports lost lines.
func (s *Shipper) batchRows(b lineBatch) []api.LogRow {
	rows := make([]api.LogRow, 0, len(b.lines)+1)
	if b.lostBefore > 0 {
		rows = append(rows, s.newRow(b.lines[0].service,
			fmt.Sprintf(
				`{"level":"WARN","msg":"lines of this log are lost here: they could not be sent in time","lines":%d}`,
				b.lostBefore)))
	}
	for _, l := range b.lines {
		rows = append(rows, s.newRow(l.service, Redact(l.text)))
	}
	return rows
}

func (s *Shipper) newRow(service, text string) api.LogRow {
	return api.LogRow{MachineName: s.opts.MachineName, Service: service, Host: s.opts.MachineAddress, Content: text}
}

// sendBatch sends a batch until it is accepted, is refused permanently, or sending is disabled.
func (s *Shipper) sendBatch(ctx context.Context, b lineBatch) {
	rows := s.batchRows(b)
	wait := retry.New(minBackoff, maxBackoff)
	for {
		limited, cancel := context.WithTimeout(ctx, sendTimeout)
		taken, err := s.opts.Send(limited, b.destination, rows)
		cancel()
		switch {
		case err == nil:
			s.metrics.countResult(len(b.lines), taken)
			return
		case isPermanent(err):
			s.recordLost(b)
			return
		case ctx.Err() != nil:
			s.sendFinal(ctx, b)
			return
		}
		_ = wait.Sleep(ctx) // the next attempt is then the last one
		next, on := s.currentDestination()
		if !on {
			return
		}
		b.destination = next
	}
}

// isPermanent reports whether an error means that the same rows will never be accepted.
func isPermanent(err error) bool {
	code := farm.CodeOf(err)
	return code == farm.CodeInvalid || code == farm.CodeRefused || code == farm.CodeTooLarge
}

// sendFinal sends a batch and all other lines once, within finalSendTimeout.
func (s *Shipper) sendFinal(ctx context.Context, b lineBatch) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalSendTimeout)
	defer cancel()
	for ; len(b.lines) > 0; b = s.nextBatch() {
		if _, err := s.opts.Send(ctx, b.destination, s.batchRows(b)); err != nil {
			return
		}
	}
}

// recordLost counts lines that are never accepted; the lost lines that the batch reported count as
// unreported again.
func (s *Shipper) recordLost(b lineBatch) {
	s.metrics.dropped.Add(int64(len(b.lines)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unreportedLost += b.lostBefore + len(b.lines)
}

func (s *Shipper) currentDestination() (to string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.destination, !s.discarding
}
