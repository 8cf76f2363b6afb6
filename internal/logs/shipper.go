package logs

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	maxWaiting = 4 << 20 // bytes of lines that wait
	maxLines   = 10000   // and their number
	maxLine    = 64 << 10
	batchLines = 500 // that are sent at a time
	batchBytes = 1 << 20
	batchEvery = 500 * time.Millisecond // how long a line waits for others
	sendLimit  = 15 * time.Second
	lastLimit  = 2 * time.Second // of what is sent when the program ends
	firstWait  = time.Second
	longWait   = 30 * time.Second
)

// Options say whose log is sent, and how.
type Options struct {
	Machine string // name of this machine
	Host    string // its address
	// Send sends rows to where Ship says. An error of CodeInvalid or CodeRefused means that they are never
	// taken; after any other they are sent again.
	Send func(ctx context.Context, to string, rows []api.LogRow) error
}

// Shipper collects lines and sends them. Until Ship or Drop is called lines wait. Its methods may be called from
// many goroutines.
type Shipper struct {
	o    Options
	wake chan struct{} // has one element when there may be something to send

	mu    sync.Mutex // guards the fields below
	to    string     // "": not known yet
	off   bool       // lines are dropped
	queue []line
	bytes int // of the queue
	lost  int // lines before those of the queue
}

// line is one line of a log.
type line struct {
	service string
	text    string
}

// New makes a shipper. Run drives it.
func New(o Options) *Shipper { return &Shipper{o: o, wake: make(chan struct{}, 1)} }

// Ship has the lines sent to an address from now on; those that wait too.
func (s *Shipper) Ship(to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to == to && !s.off {
		return
	}
	s.to, s.off = to, false
	s.signal()
}

// Drop has no lines sent from now on, nor those that wait.
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

// Tee gives a writer that writes to w and has each line that is written sent too, as one of a service.
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

// add takes a line. It never waits for anything but the mutex, which nobody holds over I/O.
func (s *Shipper) add(service string, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off {
		return
	}
	text := string(p[:min(len(p), maxLine)])
	s.queue = append(s.queue, line{service, strings.TrimSuffix(text, "\n")})
	s.bytes += len(text)
	for s.bytes > maxWaiting || len(s.queue) > maxLines {
		s.shift()
		s.lost++
	}
	s.signal()
}

// shift takes the oldest line.
func (s *Shipper) shift() line {
	first := s.queue[0]
	s.queue[0] = line{}
	s.queue = s.queue[1:]
	s.bytes -= len(first.text)
	return first
}

// Run sends lines until ctx ends, and then once more what there is.
func (s *Shipper) Run(ctx context.Context) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
		pause(ctx, batchEvery)
		for {
			rows, to := s.take()
			if len(rows) == 0 {
				break
			}
			if ctx.Err() != nil {
				s.last(ctx, to, rows)
				return
			}
			s.send(ctx, to, rows)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// last sends rows once, however little time there is.
func (s *Shipper) last(ctx context.Context, to string, rows []api.LogRow) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLimit)
	defer cancel()
	for ; len(rows) > 0; rows, to = s.take() {
		if s.o.Send(ctx, to, rows) != nil {
			return
		}
	}
}

// take gives the rows that are sent next.
func (s *Shipper) take() (rows []api.LogRow, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to == "" || s.off || len(s.queue) == 0 {
		return nil, ""
	}
	if s.lost > 0 {
		rows = append(rows, s.row(s.queue[0].service, fmt.Sprintf(`{"level":"WARN","msg":"lines of this log are lost here: they could not be sent in time","lines":%d}`, s.lost)))
		s.lost = 0
	}
	for bytes := 0; len(s.queue) > 0 && len(rows) < batchLines && bytes < batchBytes; {
		next := s.shift()
		bytes += len(next.text)
		rows = append(rows, s.row(next.service, Redact(next.text)))
	}
	if len(s.queue) == 0 {
		s.queue, s.bytes = nil, 0
	}
	return rows, s.to
}

func (s *Shipper) row(service, text string) api.LogRow {
	return api.LogRow{MachineName: s.o.Machine, Service: service, Host: s.o.Host, Content: text}
}

// send sends rows until they are taken, can never be, or are no longer wanted there.
func (s *Shipper) send(ctx context.Context, to string, rows []api.LogRow) {
	for wait := firstWait; ; wait = min(2*wait, longWait) {
		limited, cancel := context.WithTimeout(ctx, sendLimit)
		err := s.o.Send(limited, to, rows)
		cancel()
		switch code := farm.CodeOf(err); {
		case err == nil:
			return
		case code == farm.CodeInvalid || code == farm.CodeRefused:
			s.lose(len(rows))
			return
		case ctx.Err() != nil:
			s.last(ctx, to, rows)
			return
		}
		pause(ctx, wait+rand.N(wait/4)) //nolint:gosec // jitter is no secret
		next, on := s.target()
		if !on {
			return
		}
		to = next
	}
}

// lose counts rows that nobody takes.
func (s *Shipper) lose(rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost += rows
}

func (s *Shipper) target() (to string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to, !s.off
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
