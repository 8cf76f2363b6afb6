package rfb

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pair returns a TCP connection's two ends, closed at the end of the test.
func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err = net.Dial("tcp", l.Addr().String())
	if err == nil {
		b, err = l.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// relayOf starts a relay and returns the peers' ends and the relay's result.
func relayOf(ctx context.Context, t *testing.T, p Passwords) (viewer, server net.Conn, result <-chan error) {
	t.Helper()
	viewer, relayViewer := pair(t)
	server, relayServer := pair(t)
	done := make(chan error, 1)
	go func() { done <- Relay(ctx, relayViewer, relayServer, p) }()
	return viewer, server, done
}

// A viewer with one password reaches a server with another one, and both see the other's bytes.
func TestRelay(t *testing.T) {
	for name, p := range map[string]Passwords{
		"two passwords": {Viewer: "viewer-password", Server: "server-password"},
		"viewers alone": {Viewer: "viewer"}, "server alone": {Server: "server"}, "none": {},
	} {
		t.Run(name, func(t *testing.T) {
			viewer, server, result := relayOf(t.Context(), t, p)
			served := make(chan error, 1)
			go func() { served <- AcceptViewer(server, p.Server) }()
			if err := LogIn(viewer, p.Viewer); err != nil {
				t.Fatal(err)
			}
			if err := <-served; err != nil {
				t.Fatal(err)
			}

			for _, way := range [][2]net.Conn{{viewer, server}, {server, viewer}} {
				text := strings.Repeat("picture ", 100_000)
				go func() { _, _ = io.WriteString(way[0], text) }()
				if got, err := readBytes(way[1], len(text)); string(got) != text || err != nil {
					t.Fatalf("%d bytes, %v", len(got), err)
				}
			}
			viewer.Close()
			if rest, err := io.ReadAll(server); len(rest) > 0 || err != nil {
				t.Errorf("after the viewer's end the server reads %q, %v", rest, err)
			}
			if err := <-result; err != nil {
				t.Error(err)
			}
		})
	}
}

// A viewer with a wrong password sees nothing of the server.
func TestRelayWrongPassword(t *testing.T) {
	viewer, server, result := relayOf(t.Context(), t, Passwords{Viewer: "right"})
	served := make(chan []byte, 1)
	go func() {
		_ = AcceptViewer(server, "")
		_, _ = server.Write([]byte("secret picture"))
		rest, _ := io.ReadAll(server)
		served <- rest
	}()
	if err := LogIn(viewer, "wrong"); err == nil || !strings.Contains(err.Error(), `"The password is wrong."`) {
		t.Errorf("the viewer got %v", err)
	}
	_, _ = viewer.Write([]byte("keys"))
	if rest, _ := io.ReadAll(viewer); len(rest) > 0 {
		t.Errorf("the viewer got %q", rest)
	}
	if err := <-result; !errors.Is(err, ErrWrongPassword) {
		t.Errorf("the relay ended with %v", err)
	}
	if rest := <-served; len(rest) > 0 {
		t.Errorf("the server got %q", rest)
	}
}

// A server that refuses the login is named in the relay's error, and the viewer gets a reason
// without it.
func TestRelayRefusedByServer(t *testing.T) {
	viewer, server, result := relayOf(t.Context(), t, Passwords{Viewer: "right", Server: "wrong"})
	go func() { _ = AcceptViewer(server, "other") }()
	if err := LogIn(viewer, "right"); err == nil || !strings.Contains(err.Error(), Unavailable) {
		t.Errorf("the viewer got %v", err)
	}
	if err := <-result; err == nil || !strings.Contains(err.Error(), "the VNC server refused the login") {
		t.Errorf("the relay ended with %v", err)
	}
}

// A server that never answers is given up after its time limit, a viewer too.
func TestRelayTimeout(t *testing.T) {
	for _, silent := range []string{"server", "viewer"} {
		t.Run(silent, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				viewer, relayViewer := net.Pipe()
				server, relayServer := net.Pipe()
				if silent != "server" {
					go func() { _ = AcceptViewer(server, "") }()
				} else {
					go func() { _ = LogIn(viewer, "") }()
				}
				begin := time.Now()
				err := Relay(t.Context(), relayViewer, relayServer, Passwords{})
				if err == nil || !strings.Contains(err.Error(), "read the version of the VNC "+silent) {
					t.Errorf("ended with %v", err)
				}
				if took := time.Since(begin); took > viewerTimeout {
					t.Errorf("ended after %s", took)
				}
				viewer.Close()
				server.Close()
			})
		})
	}
}

// The context ends a relay during the handshake and after it. Only the first is an error.
func TestRelayCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, _, result := relayOf(ctx, t, Passwords{})
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("during the handshake: %v", err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	viewer, server, result := relayOf(ctx, t, Passwords{})
	go func() { _ = AcceptViewer(server, "") }()
	if err := LogIn(viewer, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := viewer.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := readBytes(server, 1); err != nil { // both handshakes are over
		t.Fatal(err)
	}
	cancel()
	if err := <-result; err != nil {
		t.Errorf("after the handshake: %v", err)
	}
}
