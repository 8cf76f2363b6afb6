package registryrest_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

// countedListener counts what a server does with its connections.
type countedListener struct {
	net.Listener
	calls *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l.calls}, err
}

type countedConn struct {
	net.Conn
	calls *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	c.calls.Add(1)
	n, err := c.Conn.Read(b)
	c.calls.Add(1)
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	c.calls.Add(1)
	return c.Conn.Write(b)
}

func (c countedConn) SetDeadline(t time.Time) error {
	c.calls.Add(1)
	return c.Conn.SetDeadline(t)
}

func (c countedConn) SetReadDeadline(t time.Time) error {
	c.calls.Add(1)
	return c.Conn.SetReadDeadline(t)
}

func (c countedConn) SetWriteDeadline(t time.Time) error {
	c.calls.Add(1)
	return c.Conn.SetWriteDeadline(t)
}

// TestIdleStreamsTouchNoConnection: for streams of an idle service the server reads and writes nothing and sets
// no deadline, however much other services log. That none is woken either is tested where streams are made
// (central).
func TestIdleStreamsTouchNoConnection(t *testing.T) {
	reg, err := registry.Open(t.Context(), registry.Options{Base: t.TempDir(), Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(rest.Handler(registryrest.Routes(reg), slog.New(slog.DiscardHandler)))
	var calls atomic.Int64
	s.Listener = countedListener{s.Listener, &calls}
	s.Start()
	defer func() {
		s.CloseClientConnections()
		s.Close()
		_ = reg.Close()
	}()
	const streams = 100
	for i := range streams {
		accept := []string{"*/*", "text/event-stream"}[i%2]
		follow(t.Context(), t, s, "service=quiet", accept) // its head has come, and so there is nothing to do any more
	}
	say := func(service string) {
		if _, err := reg.Logs().Append([]api.LogRow{{Service: service, MachineName: "m", Content: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	settle := func() int64 {
		for {
			before := calls.Load()
			time.Sleep(100 * time.Millisecond)
			if after := calls.Load(); after == before {
				return after
			}
		}
	}
	before := settle()
	for range 1000 {
		say("loud")
	}
	if after := settle(); after != before {
		t.Errorf("%d idle streams have the server touch connections %d times", streams, after-before)
	}
	say("quiet")
	if after := settle(); after < before+streams {
		t.Error(fmt.Sprint("only ", after-before, " touches are counted when all streams get a row"))
	}
}
