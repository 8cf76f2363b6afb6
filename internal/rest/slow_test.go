package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowServer serves a handler on connections in memory. Its limit of slow clients is of all of them.
type slowServer struct {
	limit  *ConcurrencyLimit
	server *http.Server
	conns  pipes
}

func newSlowServer(t *testing.T, total int, h http.Handler) *slowServer {
	over, done := context.WithCancel(t.Context())
	s := &slowServer{limit: NewConcurrencyLimit("slow clients", "SVC_MAX_SLOW_CLIENTS",
		total), conns: pipes{make(chan net.Conn), done, over}}
	s.server = &http.Server{
		Handler: h, ReadHeaderTimeout: time.Hour, IdleTimeout: time.Hour,
		BaseContext: func(net.Listener) context.Context { return WithSlowClients(over, s.limit) },
	}
	l := LimitSlowClients(s.conns, s.limit, false)
	go func() { _ = s.server.Serve(l) }()
	return s
}

func (s *slowServer) connect() net.Conn {
	here, there := net.Pipe()
	s.conns.next <- there
	return here
}

// ask sends the head of a request. The channel receives the response when the connection is closed.
func (s *slowServer) ask(head string) (conn net.Conn, answer <-chan string) {
	conn = s.connect()
	got := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(conn)
		got <- string(text)
	}()
	_, _ = io.WriteString(conn, head)
	return conn, got
}

var slowRoutes = []Route{
	{Pattern: "POST /body", Handle: func(r *Request) (any, error) { return len(r.Params.RawBody()), nil }},
	{Pattern: "GET /list", HandleRaw: func(w http.ResponseWriter, _ *http.Request) error {
		_, err := w.Write(bytes.Repeat([]byte("x"), 16<<20))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		return nil
	}},
}

// trickle sends a byte a second until that fails, and then closes the returned channel.
func trickle(conn net.Conn) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := conn.Write([]byte(" ")); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}()
	return ended
}

// TestSlowBodies: a body of a byte a second is cut within seconds; the caller receives the reason.
func TestSlowBodies(t *testing.T) {
	for name, head := range map[string]string{
		"announced": "Content-Length: 4000\r\n\r\n", "in chunks": "Transfer-Encoding: chunked\r\n\r\nfff\r\n",
		"large": "Content-Length: 4000000\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSlowServer(t, 4, Handler(slowRoutes, slog.New(slog.DiscardHandler)))
				defer s.server.Close()
				began := time.Now()
				conn, answer := s.ask("POST /body HTTP/1.1\r\nHost: x\r\n" + head)
				ended := trickle(conn)
				text := <-answer
				if took := time.Since(began); took > bodyGrace+time.Second || took < bodyGrace {
					t.Errorf("it was cut after %s", took)
				}
				if !strings.Contains(text, "400 Bad Request") || !strings.Contains(text, "was sent too slowly") {
					t.Error(text)
				}
				_ = conn.Close()
				<-ended
				if synctest.Wait(); s.limit.OpenCount() != 0 {
					t.Errorf("%d places are still taken", s.limit.OpenCount())
				}
			})
		})
	}
}

// TestBodiesThatMove: a large body over a slow connection may take long.
func TestBodiesThatMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t, 4, Handler(slowRoutes, slog.New(slog.DiscardHandler)))
		defer s.server.Close()
		const size = 4 << 20
		conn, answer := s.ask(
			fmt.Sprintf("POST /body HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n{", size))
		text := []byte("1" + strings.Repeat(" ", 40<<10-1))
		text[0] = ' '
		for sent := 1; sent < size-1; {
			n, err := conn.Write(text[:min(len(text), size-1-sent)])
			sent += n
			if err != nil {
				t.Fatalf("cut after %d bytes: %v", sent, err)
			}
			time.Sleep(time.Second)
		}
		_, _ = io.WriteString(conn, "}")
		if got := <-answer; !strings.Contains(got, fmt.Sprintf(`"body":%d}`, size)) {
			t.Errorf("%.300s", got)
		}
		_ = conn.Close()
	})
}

// TestManySlowBodies: one of too many is refused as soon as it turns out to be slow, and quick ones
// are never counted.
func TestManySlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t, 4, Handler(slowRoutes, slog.New(slog.DiscardHandler))) // one of each address
		defer s.server.Close()
		first, firstAnswer := s.ask("POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
		time.Sleep(slowAfter + time.Millisecond)
		began := time.Now()
		second, secondAnswer := s.ask("POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
		quick,
			quickAnswer := s.ask("POST /body HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
		if got := <-quickAnswer; !strings.Contains(got, `"body":2`) {
			t.Error(got)
		}
		got := <-secondAnswer
		if took := time.Since(began); took < slowAfter || took > slowAfter+time.Second {
			t.Errorf("refused after %s", took)
		}
		for _, want := range []string{
			"429 Too Many Requests", "Retry-After: 5", "SVC_MAX_SLOW_CLIENTS", "Connection: close",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in %s", want, got)
			}
		}
		if got := <-firstAnswer; !strings.Contains(got, "was sent too slowly") {
			t.Error(got)
		}
		for _, c := range []net.Conn{first, second, quick} {
			_ = c.Close()
		}
		if synctest.Wait(); s.limit.OpenCount() != 0 {
			t.Errorf("%d places are still taken", s.limit.OpenCount())
		}
	})
}

// TestReadersThatDoNotRead: a client that requests much and reads nothing, or next to nothing, is cut; a slow
// one is not.
func TestReadersThatDoNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		take   int // bytes a second
		whole  bool
		within time.Duration
	}{
		"takes nothing":  {0, false, 30 * time.Second},
		"takes little":   {1 << 10, false, time.Minute},
		"takes its time": {64 << 10, true, 300 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSlowServer(t, 4, Handler(slowRoutes, slog.New(slog.DiscardHandler)))
				defer s.server.Close()
				conn := s.connect()
				defer conn.Close()
				go func() {
					_, _ = io.WriteString(conn, "GET /list HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
				}()
				got, began := int64(0), time.Now()
				var err error
				for err == nil && time.Since(began) < c.within {
					time.Sleep(time.Second)
					if c.take > 0 {
						var n int64
						n, err = io.CopyN(io.Discard, conn, int64(c.take))
						got += n
					}
				}
				if c.whole != (got > 16<<20) {
					t.Errorf("it got %d bytes in %s, then %v", got, time.Since(began), err)
				}
				if !c.whole {
					rest, _ := io.Copy(io.Discard, conn) // what was written before the cut
					if got+rest > 1<<20 {
						t.Errorf("it could read %d bytes", got+rest)
					}
				}
				if synctest.Wait(); s.limit.OpenCount() != 0 {
					t.Errorf("%d places are still taken", s.limit.OpenCount())
				}
			})
		})
	}
}

// TestManySlowReaders: those over the limit are cut immediately.
func TestManySlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t, 3, Handler(slowRoutes, slog.New(slog.DiscardHandler)))
		defer s.server.Close()
		var conns []net.Conn
		for range 10 {
			conn := s.connect()
			defer conn.Close()
			go func() { _, _ = io.WriteString(conn, "GET /list HTTP/1.1\r\nHost: x\r\n\r\n") }()
			conns = append(conns, conn)
		}
		time.Sleep(3 * slowAfter)
		synctest.Wait()
		if s.limit.OpenCount() != 3 {
			t.Errorf("%d slow readers", s.limit.OpenCount())
		}
		cut := 0
		for _, conn := range conns {
			_ = conn.SetWriteDeadline(time.Now().Add(time.Millisecond))
			if _, err := conn.Write([]byte("x")); errors.Is(err, io.ErrClosedPipe) {
				cut++
			}
		}
		if cut != 7 {
			t.Errorf("%d were cut", cut)
		}
		time.Sleep(time.Minute)
		if synctest.Wait(); s.limit.OpenCount() != 0 {
			t.Errorf("%d places are still taken", s.limit.OpenCount())
		}
	})
}

// TestSlowConnPassesOn: calls other than writes go to the underlying connection, and a file is sent to its end
// and no further.
func TestSlowConnPassesOn(t *testing.T) {
	here, there := net.Pipe()
	c := &slowConn{Conn: here}
	must(t, c.SetDeadline(time.Unix(1, 0)))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read after its deadline: %v", err)
	}
	must(t, c.CloseWrite()) // a pipe has no halves
	must(t, here.Close())
	must(t, there.Close())
	if err := c.SetDeadline(time.Unix(1, 0)); err == nil {
		t.Error("a closed connection has a deadline")
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		peer, err := l.Accept()
		if err != nil {
			return
		}
		all, _ := io.ReadAll(peer)
		got <- string(all)
	}()
	tcp, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer tcp.Close()
	c = &slowConn{Conn: tcp}
	src := strings.NewReader("abcdef")
	for _, step := range []struct {
		src  io.Reader
		want int64
	}{{io.LimitReader(src, 4), 4}, {src, 2}, {src, 0}} {
		if n, err := c.ReadFrom(step.src); n != step.want || err != nil {
			t.Errorf("%d bytes, %v; want %d", n, err, step.want)
		}
	}
	large := strings.Repeat("x", 3*writeStep+1)
	if n, err := c.ReadFrom(strings.NewReader(large)); n != int64(len(large)) || err != nil {
		t.Errorf("%d of %d bytes, %v", n, len(large), err)
	}
	if n, err := c.ReadFrom(brokenReader{}); n != 0 || err == nil {
		t.Errorf("of a broken file: %d bytes, %v", n, err)
	}
	must(t, c.CloseWrite())
	if text := <-got; text != "abcdef"+large {
		t.Errorf("%d bytes came", len(text))
	}

	piped, other := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, other) }()
	if n, err := (&slowConn{Conn: piped}).ReadFrom(strings.NewReader("abc")); n != 3 || err != nil {
		t.Errorf("over a connection that sends no files: %d, %v", n, err)
	}
	must(t, piped.Close())
}
