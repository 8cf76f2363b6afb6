package central

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/buildyard/buildyard/internal/farm"
)

const (
	maxStreams = 1024      // regardless of the settings
	maxPending = 512 << 10 // bytes that wait for a slow reader, above the longest row; more are skipped
)

// ErrEnded is the end of a stream whose logs were closed.
var ErrEnded = errors.New("the central logs were closed")

// Stream delivers the rows of one service as they are written. An idle stream costs nothing: only
// rows of its service wake it. One goroutine reads it; it must be closed.
type Stream struct {
	l       *Logs
	service string
	wake    chan struct{} // has one element when there is something to read

	mu      sync.Mutex // guards the fields below
	pending []byte
	skipped int
	ended   bool
	woken   int // times that Next had something to read
}

// Follow opens a stream of a service, which need not have rows yet. past are its last lines so far.
func (l *Logs) Follow(service string, lines int) (past []byte, s *Stream, err error) {
	if err := CheckService(service); err != nil {
		return nil, nil, err
	}
	s, views, err := l.subscribe(service, lines)
	for _, v := range views {
		defer func() { _ = v.Close() }()
	}
	if err == nil && lines > 0 {
		past, err = ends(views, lines)
	}
	if err != nil && s != nil {
		s.Close()
	}
	return past, s, err
}

// subscribe opens a stream at the current sizes of the files in views, so that no row is lost or
// delivered twice.
func (l *Logs) subscribe(service string, lines int) (*Stream, []*View, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stats.Streams >= maxStreams {
		return nil, nil, farm.Errorf(farm.CodeBusy, "Limit of open log streams (%d) reached; close one and try again",
			maxStreams)
	}
	l.stats.Streams++
	s := &Stream{l: l, service: service, wake: make(chan struct{}, 1)}
	if l.streams[service] == nil {
		l.streams[service] = map[*Stream]bool{}
	}
	l.streams[service][s] = true
	if lines == 0 {
		return s, nil, nil
	}
	all := l.sorted(service)
	most := pastFiles
	if service == EventService { // its rows do not begin with a time
		most = 1
	}
	var views []*View
	for _, f := range all[max(0, len(all)-most):] {
		v, err := l.view(f)
		if farm.CodeOf(err) == farm.CodeNotFound {
			continue
		}
		if err != nil {
			return s, views, err
		}
		views = append(views, v)
	}
	return s, views, nil
}

// tell delivers new rows to the streams of a service. The caller holds mu.
func (l *Logs) tell(service string, lines []byte) {
	for s := range l.streams[service] {
		l.stats.Skipped += int64(s.add(lines))
	}
}

// add queues rows for the reader and returns the number of skipped ones: after one skipped row, all
// are skipped until the reader has read.
func (s *Stream) add(lines []byte) (skipped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fit := len(lines)
	if room := maxPending - len(s.pending); s.skipped > 0 {
		fit = 0
	} else if fit > room {
		fit = bytes.LastIndexByte(lines[:room], '\n') + 1
	}
	s.pending = append(s.pending, lines[:fit]...)
	skipped = bytes.Count(lines[fit:], []byte("\n"))
	s.skipped += skipped
	s.signal()
	return skipped
}

func (s *Stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.signal()
}

// Next waits for rows and returns them as whole lines. Where the reader was too slow, a line
// reports the number of missing rows.
func (s *Stream) Next(ctx context.Context) ([]byte, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.wake:
		}
		if lines, err := s.take(); len(lines) > 0 || err != nil {
			return lines, err
		}
	}
}

func (s *Stream) take() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.woken++
	lines := s.pending
	s.pending = nil
	if s.skipped > 0 {
		lines = fmt.Appendf(lines, "... %d rows are skipped here: they come faster than they are read\n", s.skipped)
		s.skipped = 0
	}
	if len(lines) == 0 && s.ended {
		return nil, ErrEnded
	}
	if s.ended {
		s.signal() // for the next call
	}
	return lines, nil
}

// Close ends the stream.
func (s *Stream) Close() {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	all := s.l.streams[s.service]
	if !all[s] {
		return
	}
	s.l.stats.Streams--
	if delete(all, s); len(all) == 0 {
		delete(s.l.streams, s.service)
	}
}
