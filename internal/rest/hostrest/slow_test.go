package hostrest

import (
	"bufio"
	"context"
	"fmt"
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
	over chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.next:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	select {
	case <-p.over:
	default:
		close(p.over)
	}
	return nil
}

func (pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// TestSlowClients: a client that sends or reads too slowly loses the connection, one that waits for a long
// operation does not.
func TestSlowClients(t *testing.T) {
	for name, c := range map[string]struct {
		sends  string
		reads  bool
		within time.Duration // the connection ends
		lives  bool
	}{
		"no request":    {"", true, headerTimeout, false},
		"half a header": {"GET /wait HTTP/1.1\r\nHost: loc", true, headerTimeout, false},
		"half a body": {
			"POST /wait HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{", true, readTimeout,
			false,
		},
		"reads nothing":     {"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n", false, writeTimeout, false},
		"waits":             {"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n", true, time.Hour, true},
		"is done, and idle": {"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", true, idleTimeout, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := New(Options{Access: Access{Listen: "127.0.0.1:1"}, Log: slog.New(slog.DiscardHandler)})
				must(t, err)
				waited := make(chan error, 1)
				s.routesByPath["/endless"] = map[string]route{"GET": {
					path: "/endless",
					stream: func(a *streamWriter, _ query) error {
						for {
							if err := a.writeValue(strings.Repeat("x", 1000)); err != nil {
								return err
							}
						}
					},
				}}
				waits := route{path: "/wait", handle: func(r *http.Request, _ query) (any, error) {
					<-r.Context().Done()
					waited <- r.Context().Err()
					return nil, r.Context().Err()
				}}
				s.routesByPath["/wait"] = map[string]route{"GET": waits, "POST": waits}
				l := pipes{make(chan net.Conn), make(chan struct{})}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.Serve(ctx, l) }()
				here, there := net.Pipe()
				l.next <- there
				began := time.Now()
				go func() { _, _ = io.WriteString(here, c.sends) }()
				closed := make(chan struct{})
				if c.reads {
					go func() {
						_, _ = io.Copy(io.Discard, here)
						close(closed)
					}()
				} else {
					go func() {
						time.Sleep(c.within + time.Second)
						_, _ = io.Copy(io.Discard, here)
						close(closed)
					}()
				}
				select {
				case <-closed:
					if took := time.Since(began); c.lives || took > c.within+2*time.Second {
						t.Errorf("the connection ended after %s", took)
					}
				case <-time.After(c.within + time.Minute):
					if !c.lives {
						t.Error("the connection is still there")
					}
				}
				if c.lives {
					select {
					case err := <-waited:
						t.Errorf("the request ended: %v", err)
					default:
					}
				}
				cancel()
				must(t, <-ended)
				_ = here.Close()
				synctest.Wait()
			})
		})
	}
}

// TestTheEnd: a request that waits is answered when the service ends.
func TestTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Access: Access{Listen: "127.0.0.1:1"}, Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		s.routesByPath["/wait"] = map[string]route{"GET": {
			path: "/wait",
			handle: func(r *http.Request, _ query) (any, error) {
				<-r.Context().Done()
				return nil, fmt.Errorf("it ends: %w", r.Context().Err())
			},
		}}
		l := pipes{make(chan net.Conn), make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx, l) }()
		here, there := net.Pipe()
		defer here.Close()
		l.next <- there
		go func() { _, _ = io.WriteString(here, "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n") }()
		synctest.Wait()
		cancel()
		resp, err := http.ReadResponse(bufio.NewReader(here), nil)
		must(t, err)
		defer resp.Body.Close()
		if raw, err := io.ReadAll(resp.Body); resp.StatusCode != 503 || err != nil ||
			!strings.Contains(string(raw), `"status":"FAIL"`) {
			t.Errorf("%d %s %v", resp.StatusCode, raw, err)
		}
		must(t, <-ended)
	})
}
