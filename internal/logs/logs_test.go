package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric/metrictest"
)

// target is a registry that records the rows it receives.
type target struct {
	mu    sync.Mutex
	err   error
	calls int
	rows  []api.LogRow
	to    []string
	hang  bool
	drops int // of the rows of each call
}

func (g *target) send(ctx context.Context, to string, rows []api.LogRow) (taken api.LogAppendResult, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	if g.hang {
		g.mu.Unlock()
		<-ctx.Done()
		g.mu.Lock()
		return taken, ctx.Err()
	}
	if g.err != nil {
		return taken, g.err
	}
	g.rows, g.to = append(g.rows, rows...), append(g.to, to)
	return api.LogAppendResult{Rows: len(rows) - g.drops, Dropped: g.drops}, nil
}

func (g *target) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

// count returns the number of requests, and optionally resets it.
func (g *target) count(anew bool) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.calls
	if anew {
		g.calls = 0
	}
	return n
}

func (g *target) taken() []api.LogRow {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rows
}

// start runs a shipper in a bubble of synctest; end ends it and waits.
func start(t *testing.T, g *target) (s *Shipper, end func()) {
	t.Helper()
	s = New(Options{MachineName: "m", MachineAddress: "h", Send: g.send})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	return s, func() {
		cancel()
		<-done
	}
}

func say(s *Shipper, format string, args ...any) {
	_, _ = fmt.Fprintf(s.Tee(io.Discard, "node"), format+"\n", args...)
}

// TestLinesOfALogger: each record is one row, and the logger's own writer receives it, too.
func TestLinesOfALogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &target{}
		s, end := start(t, g)
		s.ShipTo("here")
		var out bytes.Buffer
		log := slog.New(slog.NewJSONHandler(s.Tee(&out, "node"), nil)).With("a", 1)
		log.Info("one")
		log.Warn("two\nlines", "token", "hush hush")
		time.Sleep(batchDelay - time.Millisecond)
		synctest.Wait()
		if len(g.taken()) != 0 {
			t.Error("a line does not wait for others")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		rows := g.taken()
		if n := g.count(false); len(rows) != 2 || n != 1 || g.to[0] != "here" {
			t.Fatalf("%d calls, %+v", n, rows)
		}
		if rows[0].Service != "node" || rows[0].MachineName != "m" || rows[0].Host != "h" ||
			!strings.HasSuffix(rows[0].Content, `"msg":"one","a":1}`) ||
			!strings.Contains(rows[1].Content, `"token":"********"`) {
			t.Errorf("%+v", rows)
		}
		if !strings.Contains(out.String(), "hush") || strings.Count(out.String(), "\n") != 2 {
			t.Errorf("the log itself is %q", out.String())
		}
		time.Sleep(24 * time.Hour)
		if n := g.count(false); n != 1 {
			t.Errorf("%d calls without a line", n)
		}
		end()
	})
}

// TestUndecided: lines wait until their destination is known, and are dropped when sending is
// disabled.
func TestUndecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &target{}
		s, end := start(t, g)
		say(s, "early")
		time.Sleep(time.Hour)
		s.ShipTo("here")
		time.Sleep(time.Second)
		if rows := g.taken(); len(rows) != 1 || rows[0].Content != "early" {
			t.Errorf("%+v", rows)
		}
		say(s, "unwanted")
		s.Discard()
		say(s, "unwanted too")
		time.Sleep(time.Second)
		s.ShipTo("there")
		say(s, "wanted")
		time.Sleep(time.Second)
		if rows := g.taken(); len(rows) != 2 || rows[1].Content != "wanted" || g.to[1] != "there" {
			t.Errorf("%+v", rows)
		}
		end()
	})
}

// TestOutage: lines wait in order during an outage; the oldest are dropped beyond the limit, and a
// row reports that.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &target{err: errors.New("connection refused")}
		s, end := start(t, g)
		s.ShipTo("here")
		say(s, "line -1")
		time.Sleep(time.Minute)
		if n := g.count(false); n < 4 || n > 8 {
			t.Errorf("%d tries in the first minute", n)
		}
		for i := range maxWaitingLines + 100 {
			say(s, "line %d", i)
		}
		g.count(true)
		time.Sleep(time.Hour)
		if n := g.count(false); n < 120 || n > 240 {
			t.Errorf("%d tries in an hour", n)
		}
		g.fail(nil)
		time.Sleep(2 * maxBackoff)
		synctest.Wait()
		rows := g.taken()
		if len(rows) != maxWaitingLines+2 || rows[0].Content != "line -1" ||
			!strings.Contains(rows[1].Content, `"lines":100}`) {
			t.Fatalf("%d rows, %+v", len(rows), rows[:min(3, len(rows))])
		}
		for i, row := range rows[2:] {
			if row.Content != fmt.Sprintf("line %d", 100+i) {
				t.Fatalf("row %d is %s", i, row.Content)
			}
		}
		if s.queuedBytes != 0 || len(s.queue) != 0 {
			t.Errorf("%d bytes are left", s.queuedBytes)
		}
		end()
	})
}

// metrics returns the metrics of a shipper.
func metricsText(s *Shipper) string {
	m := metrictest.Values(Families(map[string]*Shipper{"central": s}))
	return fmt.Sprintf("%.0f sent, %.0f lost, %.0f wait", m["buildyard_log_lines_sent_total{central}"],
		m["buildyard_log_lines_dropped_total{central}"], m["buildyard_log_lines_waiting{central}"])
}

// TestAnHourAway: a long outage needs no more memory than a short one, and every lost line is
// counted and reported. Each line counts with its bytes in the queue: otherwise the queue would
// shrink with every lost line, until it has no capacity left.
func TestAnHourAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &target{err: errors.New("connection refused")}
		s, end := start(t, g)
		s.ShipTo("here")
		const lines = 60 * 60 * 20
		for i := range lines {
			say(s, "line %d", i)
			time.Sleep(51 * time.Millisecond) // never when a batch is due
		}
		synctest.Wait()
		s.mu.Lock()
		bytes := 0
		for _, l := range s.queue {
			bytes += len(l.text)
		}
		if s.queuedBytes != bytes || len(s.queue) != maxWaitingLines {
			t.Errorf("%d lines of %d bytes count as %d", len(s.queue), bytes, s.queuedBytes)
		}
		s.mu.Unlock()
		first := 10 // that were being sent when it began: those of half a second
		if got, want := metricsText(s), fmt.Sprintf("0 sent, %d lost, %d wait", lines-first-maxWaitingLines,
			maxWaitingLines); got != want {
			t.Errorf("%s; want %s", got, want)
		}
		g.fail(nil)
		time.Sleep(2 * maxBackoff)
		synctest.Wait()
		if got, want := metricsText(s), fmt.Sprintf("%d sent, %d lost, 0 wait", first+maxWaitingLines,
			lines-first-maxWaitingLines); got != want {
			t.Errorf("%s; want %s", got, want)
		}
		if rows := g.taken(); len(rows) != first+1+maxWaitingLines ||
			!strings.Contains(rows[first].Content, fmt.Sprintf(`"lines":%d}`, lines-first-maxWaitingLines)) {
			t.Errorf("%d rows, %+v", len(rows), rows[first])
		}
		end()
	})
}

// TestDroppedThere: rows that were accepted but could not be written are lost, not sent again.
func TestDroppedThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &target{drops: 1}
		s, end := start(t, g)
		s.ShipTo("here")
		say(s, "a")
		say(s, "b")
		time.Sleep(time.Second)
		synctest.Wait()
		if got := metricsText(s); got != "1 sent, 1 lost, 0 wait" {
			t.Error(got)
		}
		end()
	})
}

func TestBytesAreBounded(t *testing.T) {
	s := New(Options{})
	for range 200 {
		say(s, "%s", strings.Repeat("x", maxLineBytes+10))
	}
	if s.queuedBytes > maxWaitingBytes || s.queuedBytes < maxWaitingBytes-maxLineBytes ||
		s.unreportedLost+len(s.queue) != 200 {
		t.Errorf("%d bytes in %d lines, %d lost", s.queuedBytes, len(s.queue), s.unreportedLost)
	}
}

// TestRefusedRows are not sent again but counted, also those that reported lost lines.
func TestRefusedRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &target{}
		s, end := start(t, g)
		s.ShipTo("here")
		for _, err := range []error{farm.Invalid("service",
			"no"), farm.Refused("too many"), farm.Errorf(farm.CodeTooLarge, "too large")} {
			g.fail(err)
			g.count(true)
			say(s, "refused")
			time.Sleep(time.Hour)
			if n := g.count(false); n != 1 {
				t.Errorf("%d tries after %v", n, err)
			}
		}
		g.fail(nil)
		say(s, "taken")
		time.Sleep(time.Second)
		synctest.Wait()
		if rows := g.taken(); len(rows) != 2 || !strings.Contains(rows[0].Content, `"lines":3}`) ||
			rows[1].Content != "taken" {
			t.Errorf("%+v", rows)
		}
		if got := metricsText(s); got != "1 sent, 3 lost, 0 wait" {
			t.Error(got)
		}
		end()
	})
}

// TestAMoveDuringAnOutage: unsent lines go to the new address.
func TestAMoveDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &target{err: errors.New("down")}
		s, end := start(t, g)
		s.ShipTo("old")
		say(s, "x")
		time.Sleep(5 * time.Second)
		s.ShipTo("new")
		g.fail(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(g.to) != 1 || g.to[0] != "new" {
			t.Errorf("sent to %v", g.to)
		}
		g.fail(errors.New("down"))
		say(s, "y")
		time.Sleep(5 * time.Second)
		s.Discard()
		g.fail(nil)
		time.Sleep(time.Minute)
		if len(g.taken()) != 1 {
			t.Error("what nobody wants was sent")
		}
		end()
	})
}

// TestTheLastLines are sent when the process ends, but only within a time limit.
func TestTheLastLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &target{}
		s, end := start(t, g)
		s.ShipTo("here")
		for i := range batchLines + 1 {
			say(s, "line %d", i)
		}
		end()
		if n := len(g.taken()); n != batchLines+1 {
			t.Errorf("%d rows", n)
		}
		g.hang = true
		s, end = start(t, g)
		s.ShipTo("here")
		say(s, "x")
		begun := time.Now()
		end()
		if took := time.Since(begun); took > finalSendTimeout {
			t.Errorf("the end takes %s", took)
		}
	})
}

func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		`{"msg":"x","token":"abc","n":1}`:                                    `{"msg":"x","token":"********","n":1}`,
		`{"vnc_password": "a\"b","join_token_file":"y"}`:                     `{"vnc_password": "********","join_token_file":"********"}`,
		`{"Authorization":"Basic cm9vdDpzZWNyZXQxMjM0"}`:                     `{"Authorization":"********"}`,
		`{"error":"got Authorization: Bearer eyJ1c2VyTmFtZSI6InJvb3QifQ=="}`: `{"error":"got Authorization: Bearer ********"}`,
		`{"url":"http://root:pa%20ss@registry.example:8089/x"}`:              `{"url":"http://********@registry.example:8089/x"}`,
		`a basic template of someone@example.com, see http://x/y@z`:          `a basic template of someone@example.com, see http://x/y@z`,
		"key -----BEGIN RSA PRIVATE " + `KEY-----\nMIIE\n-----END RSA PRIVATE ` +
			"KEY----- left": "key -----BEGIN RSA PRIVATE " + "KEY ******** left",
		`{"msg":"instance recovered","instance":"aaaaaaaa-0000-4000-8000-000000000001"}`: `{"msg":"instance recovered","instance":"aaaaaaaa-0000-4000-8000-000000000001"}`,
	} {
		if got := Redact(text); got != want {
			t.Errorf("%s\nbecomes %s\nwant    %s", text, got, want)
		}
	}
}

func BenchmarkTee(b *testing.B) {
	for name, prepare := range map[string]func(*Shipper){"waits": func(*Shipper) {}, "off": (*Shipper).Discard} {
		b.Run(name, func(b *testing.B) {
			s := New(Options{})
			prepare(s)
			log := slog.New(slog.NewJSONHandler(s.Tee(io.Discard, "node"), nil))
			b.ReportAllocs()
			for b.Loop() {
				log.Info("instance recovered", "instance", "aaaaaaaa-0000-4000-8000-000000000001")
			}
		})
	}
}
