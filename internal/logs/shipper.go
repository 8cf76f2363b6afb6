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
	maxWaiting = 4 << 20 // bytes of waiting lines
	maxLines   = 10000   // and their number
	maxLine    = 64 << 10
	batchLines = 500                    // that are sent in one request
	batchBytes = 256 << 10              // and their bytes; twice that as JSON, and proxies accept 1 MiB
	batchEvery = 500 * time.Millisecond // how long a line waits for others
	sendLimit  = 15 * time.Second
	lastLimit  = 2 * time.Second // to send the rest when the process ends
	firstWait  = time.Second
	longWait   = 30 * time.Second
)

// Options define whose log is sent, and how.
type Options struct {
	Machine string // name of this machine
	Host    string // its address
	// Send sends rows to the address passed to Ship. An error of CodeInvalid, CodeRefused or
	// CodeTooLarge means that they are never accepted; after any other error they are sent again.
	Send func(ctx context.Context, to string, rows []api.LogRow) (api.LogAppendResult, error)
}

// Shipper collects lines and sends them. Lines wait until Ship or Drop is called. Its methods may
// be called from many goroutines.
type Shipper struct {
	o       Options
	wake    chan struct{} // has one element when there may be something to send
	metrics metrics

	mu    sync.Mutex // guards the fields below
	to    string     // "": not known yet
	off   bool       // lines are dropped
	queue []line
	bytes int // of the texts in the queue
	lost  int // lines before those of the queue that no row has reported yet
}

// line is one line of a log.
type line struct {
	service string
	text    string
}

// New returns a shipper. Run drives it.
func New(o Options) *Shipper { return &Shipper{o: o, wake: make(chan struct{}, 1)} }

// Ship sends lines to an address from now on, including those that wait.
func (s *Shipper) Ship(to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to == to && !s.off {
		return
	}
	s.to, s.off = to, false
	s.signal()
}

// Drop discards lines from now on, including those that wait.
func (s *Shipper) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off {
		return
	}
	s.off, s.queue, s.bytes, s.lost = true, nil, 0, 0
	s.signal()
}

func (s *Shipper) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Tee returns a writer that writes to w and also sends each written line as one of a service.
func (s *Shipper) Tee(w io.Writer, service string) io.Writer { return &tee{w, s, service} }

type tee struct {
	w       io.Writer
	s       *Shipper
	service string
}

func (t *tee) Write(p []byte) (int, error) {
	t.s.add(t.service, p)
	return t.w.Write(p)
}

// add queues a line. It only ever waits for the mutex, which is never held during work or I/O.
func (s *Shipper) add(service string, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off {
		return
	}
	next := line{service, strings.TrimSuffix(string(p[:min(len(p), maxLine)]), "\n")}
	s.queue = append(s.queue, next)
	s.bytes += len(next.text)
	for s.bytes > maxWaiting || len(s.queue) > maxLines {
		s.shift()
		s.lost++
		s.metrics.dropped.Inc()
	}
	s.signal()
}

// shift removes the oldest line.
func (s *Shipper) shift() line {
	first := s.queue[0]
	s.queue[0] = line{}
	s.queue = s.queue[1:]
	s.bytes -= len(first.text)
	return first
}

// Run sends lines until ctx ends, and then the rest once more.
func (s *Shipper) Run(ctx context.Context) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
		_ = retry.Sleep(ctx, batchEvery)
		for {
			b := s.take()
			if len(b.lines) == 0 {
				break
			}
			if ctx.Err() != nil {
				s.last(ctx, b)
				return
			}
			s.send(ctx, b)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// batch contains the lines of one request.
type batch struct {
	to    string
	gap   int // lines that were lost before these
	lines []line
}

// take returns the next lines to send.
func (s *Shipper) take() (b batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to == "" || s.off || len(s.queue) == 0 {
		return b
	}
	b.to, b.gap, s.lost = s.to, s.lost, 0
	for bytes := 0; len(s.queue) > 0 && len(b.lines) < batchLines && bytes < batchBytes; {
		next := s.shift()
		bytes += len(next.text)
		b.lines = append(b.lines, next)
	}
	if len(s.queue) == 0 {
		s.queue = nil // releases the array
	}
	return b
}

// rows returns the rows of a batch; the first one reports lost lines.
func (s *Shipper) rows(b batch) []api.LogRow {
	rows := make([]api.LogRow, 0, len(b.lines)+1)
	if b.gap > 0 {
		rows = append(rows, s.row(b.lines[0].service,
			fmt.Sprintf(
				`{"level":"WARN","msg":"lines of this log are lost here: they could not be sent in time","lines":%d}`,
				b.gap)))
	}
	for _, l := range b.lines {
		rows = append(rows, s.row(l.service, Redact(l.text)))
	}
	return rows
}

func (s *Shipper) row(service, text string) api.LogRow {
	return api.LogRow{MachineName: s.o.Machine, Service: service, Host: s.o.Host, Content: text}
}

// send sends a batch until it is accepted, is refused permanently, or sending is disabled.
func (s *Shipper) send(ctx context.Context, b batch) {
	rows := s.rows(b)
	wait := retry.New(firstWait, longWait)
	for {
		limited, cancel := context.WithTimeout(ctx, sendLimit)
		taken, err := s.o.Send(limited, b.to, rows)
		cancel()
		switch {
		case err == nil:
			s.metrics.note(len(b.lines), taken)
			return
		case never(err):
			s.lose(b)
			return
		case ctx.Err() != nil:
			s.last(ctx, b)
			return
		}
		_ = wait.Sleep(ctx) // the next attempt is then the last one
		next, on := s.target()
		if !on {
			return
		}
		b.to = next
	}
}

// never reports whether an error means that the same rows will never be accepted.
func never(err error) bool {
	code := farm.CodeOf(err)
	return code == farm.CodeInvalid || code == farm.CodeRefused || code == farm.CodeTooLarge
}

// last sends a batch and all other lines once, within lastLimit.
func (s *Shipper) last(ctx context.Context, b batch) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLimit)
	defer cancel()
	for ; len(b.lines) > 0; b = s.take() {
		if _, err := s.o.Send(ctx, b.to, s.rows(b)); err != nil {
			return
		}
	}
}

// lose counts lines that are never accepted; the lost lines that the batch reported count as
// unreported again.
func (s *Shipper) lose(b batch) {
	s.metrics.dropped.Add(int64(len(b.lines)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost += b.gap + len(b.lines)
}

func (s *Shipper) target() (to string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to, !s.off
}
