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
	maxStreams      = 1024      // regardless of the settings
	maxPendingBytes = 512 << 10 // bytes that wait for a slow reader, above the longest row; more are skipped
)

// ErrLogsClosed is the end of a stream whose logs were closed.
var ErrLogsClosed = errors.New("the central logs were closed")

// Stream delivers the rows of one service as they are written. An idle stream costs nothing: only
// rows of its service wake it. One goroutine reads it; it must be closed.
type Stream struct {
	logs    *Logs
	service string
	wake    chan struct{} // has one element when there is something to read

	mu          sync.Mutex // guards the fields below
	pending     []byte
	skippedRows int
	ended       bool
	wakeCount   int // times that Next had something to read
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
		past, err = lastRows(views, lines)
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
	s := &Stream{logs: l, service: service, wake: make(chan struct{}, 1)}
	if l.streams[service] == nil {
		l.streams[service] = map[*Stream]bool{}
	}
	l.streams[service][s] = true
	if lines == 0 {
		return s, nil, nil
	}
	all := l.sortedFiles(service)
	most := streamStartFiles
	if service == EventService { // its rows do not begin with a time
		most = 1
	}
	var views []*View
	for _, f := range all[max(0, len(all)-most):] {
		v, err := l.openView(f)
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

// deliver delivers new rows to the streams of a service. The caller holds mu.
func (l *Logs) deliver(service string, lines []byte) {
	for s := range l.streams[service] {
		l.stats.Skipped += int64(s.queueRows(lines))
	}
}

// queueRows queues rows for the reader and returns the number of skipped ones: after one skipped row, all
// are skipped until the reader has read.
func (s *Stream) queueRows(lines []byte) (skipped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fit := len(lines)
	if room := maxPendingBytes - len(s.pending); s.skippedRows > 0 {
		fit = 0
	} else if fit > room {
		fit = bytes.LastIndexByte(lines[:room], '\n') + 1
	}
	s.pending = append(s.pending, lines[:fit]...)
	skipped = bytes.Count(lines[fit:], []byte("\n"))
	s.skippedRows += skipped
	s.wakeUp()
	return skipped
}

func (s *Stream) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Stream) endStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.wakeUp()
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
		if lines, err := s.takePending(); len(lines) > 0 || err != nil {
			return lines, err
		}
	}
}

func (s *Stream) takePending() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeCount++
	lines := s.pending
	s.pending = nil
	if s.skippedRows > 0 {
		lines = fmt.Appendf(lines, "... %d rows are skipped here: they come faster than they are read\n", s.skippedRows)
		s.skippedRows = 0
	}
	if len(lines) == 0 && s.ended {
		return nil, ErrLogsClosed
	}
	if s.ended {
		s.wakeUp() // for the next call
	}
	return lines, nil
}

// Close ends the stream.
func (s *Stream) Close() {
	s.logs.mu.Lock()
	defer s.logs.mu.Unlock()
	all := s.logs.streams[s.service]
	if !all[s] {
		return
	}
	s.logs.stats.Streams--
	if delete(all, s); len(all) == 0 {
		delete(s.logs.streams, s.service)
	}
}
