package rest

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener with in-memory connections, so that their deadlines use the test's fake clock.
type pipes struct {
	next chan net.Conn
	done context.CancelFunc
	over context.Context
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.next:
		return c, nil
	case <-p.over.Done():
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	p.done()
	return nil
}

func (pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// TestBodiesThatNeverCome: a client that announces a body and sends none keeps no connection, whether it is
// refused before that or not; one that sends it continues.
func TestBodiesThatNeverCome(t *testing.T) {
	for name, c := range map[string]struct {
		path, sent string
		within     time.Duration
		lives      bool
	}{
		"refused":            {"/vm", "", maxBodyWait + time.Second, false},
		"refused, with body": {"/vm", strings.Repeat(" ", 100), maxBodyWait + time.Second, true},
		"read":               {"/open", "{", bodyGrace + time.Second, false},
		"read, with body": {"/open", "{" + strings.Repeat(" ", 98) + "}", bodyGrace + maxBodyWait +
			time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t)
				over, done := context.WithCancel(t.Context())
				l := pipes{make(chan net.Conn), done, over}
				server := &http.Server{
					Handler: g.guard.Handler(g.routes(), slog.New(slog.DiscardHandler)), IdleTimeout: time.Hour,
					ReadHeaderTimeout: time.Hour,
				}
				go func() { _ = server.Serve(l) }()
				here, there := net.Pipe()
				l.next <- there
				ended := make(chan struct{})
				go func() {
					_, _ = io.Copy(io.Discard, here)
					close(ended)
				}()
				if _, err := io.WriteString(here, "POST "+c.path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"+
					c.sent); err != nil {
					t.Fatal(err)
				}
				time.Sleep(c.within)
				synctest.Wait()
				select {
				case <-ended:
					if c.lives {
						t.Error("the connection was ended")
					}
				default:
					if !c.lives {
						t.Error("the connection is still there")
					}
				}
				_ = here.Close()
				_ = server.Close()
				<-ended
			})
		})
	}
}
