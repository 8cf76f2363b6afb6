package central

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

func TestFollow(t *testing.T) {
	c := newClock()
	l := open(t, t.TempDir(), Options{Now: c.Now})
	for i := range 6 {
		c.advance(time.Second)
		add(t, l, row("node", []string{"a", "b"}[i%2], fmt.Sprint(i)))
	}
	past, s, err := l.Follow("node", 3)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var last []string
	for line := range strings.Lines(string(past)) {
		last = append(last, strings.TrimSpace(line[len(line)-2:]))
	}
	if strings.Join(last, "") != "345" {
		t.Errorf("the past is %s", past)
	}
	add(t, l, row("other", "a", "not here"))
	add(t, l, row("node", "a", "6"))
	next, err := s.Next(t.Context())
	if err != nil || !strings.HasSuffix(string(next), "a 10.0.0.1 6\n") || strings.Count(string(next), "\n") != 1 {
		t.Errorf("%q, %v", next, err)
	}
	early, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Next(early); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader that went: %v", err)
	}
	add(t, l, row("node", "a", "7"))
	_ = l.Close()
	if next, err := s.Next(t.Context()); err != nil || !strings.HasSuffix(string(next), " 7\n") {
		t.Errorf("%q, %v", next, err)
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, ErrLogsClosed) {
		t.Errorf("closed logs: %v", err)
	}
}

func TestSlowReader(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	_, s, err := l.Follow("node", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 10 {
		add(t, l, row("node", "m", strings.Repeat("x", maxContentBytes)))
	}
	add(t, l, row("node", "m", "after what is skipped")) // and so skipped, too, although it is small
	next, err := s.Next(t.Context())
	if err != nil || len(next) > maxPendingBytes+100 ||
		!strings.HasSuffix(string(next), "\n... 4 rows are skipped here: they come faster than they are read\n") {
		t.Errorf("%d bytes, %.100q, %v", len(next), next[max(0, len(next)-100):], err)
	}
	if n := l.Stats().Skipped; n != 4 {
		t.Errorf("%d skipped", n)
	}
	add(t, l, row("node", "m", "again"))
	if next, err := s.Next(t.Context()); err != nil || !strings.HasSuffix(string(next), " again\n") ||
		strings.Count(string(next), "\n") != 1 {
		t.Errorf("%.100q, %v", next, err)
	}
}

// TestStreamOfOneLargeRequest: the rows of one request use no more memory in a stream than others, and
// the longest possible row fits.
func TestStreamOfOneLargeRequest(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	_, s, err := l.Follow("node", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	long := row("node", strings.Repeat("m", maxNameBytes), strings.Repeat("\x01", maxContentBytes+1))
	long.Host = strings.Repeat("\x01", maxHostBytes)
	add(t, l, long)
	if next, err := s.Next(t.Context()); err != nil || bytes.Count(next, []byte("\n")) != 1 ||
		!bytes.HasSuffix(next, []byte("[cut]\n")) {
		t.Errorf("%d bytes, %v", len(next), err)
	}
	many := make([]api.LogRow, 1000)
	for i := range many {
		many[i] = row("node", "m", fmt.Sprint(i, strings.Repeat("x", 8000)))
	}
	add(t, l, many...)
	next, err := s.Next(t.Context())
	if kept := bytes.Count(next, []byte("\n")) - 1; err != nil || len(next) > maxPendingBytes+100 || kept < 60 ||
		!bytes.HasSuffix(next, fmt.Appendf(nil, "... %d rows are skipped here: they come faster than they are read\n",
			1000-kept)) {
		t.Errorf("%d rows in %d bytes, %v", kept, len(next), err)
	}
}

// TestThePastOfATornRow: a stream never joins a partial row that a kill left with the next one.
func TestThePastOfATornRow(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/node", 0o755), os.WriteFile(dir+"/node/m.2026-03-04.log",
		[]byte("2026-03-04T05:06:07.008Z m - whole\n2026-03-04T05:06:08.008Z m - hal"), 0o600)); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir, Options{Now: newClock().Now})
	past, s, err := l.Follow("node", 10)
	if err != nil || !strings.HasSuffix(string(past), " whole\n2026-03-04T05:06:08.008Z m - hal\n") {
		t.Errorf("%q, %v", past, err)
	}
	s.Close()
}

// TestIdleStreamsAreNeverWoken: neither by rows of others nor by a timer, regardless of the duration.
func TestIdleStreamsAreNeverWoken(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, dir, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		var streams []*Stream
		for range 100 {
			_, s, err := l.Follow("quiet", 0)
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
			work.Go(func() {
				if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("ended with %v", err)
				}
				s.Close()
			})
		}
		for i := range 1000 {
			add(t, l, row("loud", "m", fmt.Sprint(i)))
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		for i, s := range streams {
			if s.wakeCount != 0 {
				t.Errorf("stream %d was woken %d times", i, s.wakeCount)
			}
		}
		cancel()
		work.Wait()
		if n := l.Stats().Streams; n != 0 || len(l.streams) != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

func TestBoundOfStreams(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	var last *Stream
	for range maxStreams {
		_, s, err := l.Follow("node", 0)
		if err != nil {
			t.Fatal(err)
		}
		last = s
	}
	if _, _, err := l.Follow("node", 0); farm.CodeOf(err) != farm.CodeBusy {
		t.Errorf("one more: %v", err)
	}
	last.Close()
	last.Close()
	if _, _, err := l.Follow("node", 0); err != nil {
		t.Errorf("after one ended: %v", err)
	}
	if _, _, err := l.Follow("node", 0); farm.CodeOf(err) != farm.CodeBusy {
		t.Errorf("one that was closed twice counts twice: %v", err)
	}
}
