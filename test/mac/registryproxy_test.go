package main

import (
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestRegistryProxy: bytes are counted in both directions, stop at the limit, and continue when the proxy is opened.
func TestRegistryProxy(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = echo.Close() }()
	go func() {
		for c, err := echo.Accept(); err == nil; c, err = echo.Accept() {
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	g, err := openRegistryProxy(t.Context(), "http://"+echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.close() }()
	c, err := net.Dial("tcp", g.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	write := func(text string) {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	read := func(text string) {
		answer := make([]byte, len(text))
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != text {
			t.Fatalf("%q, %v, want %q", answer, err, text)
		}
	}
	write("hello")
	read("hello")
	if g.up.Load() != 5 || g.down.Load() != 5 || g.isShut() {
		t.Errorf("%d up, %d down", g.up.Load(), g.down.Load())
	}
	g.shutAfter(4)
	write("word")
	for !g.isShut() {
		time.Sleep(time.Millisecond)
	}
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(make([]byte, 4)); !os.IsTimeout(err) {
		t.Errorf("%d bytes cross the shut proxy, %v", n, err)
	}
	g.open()
	read("word")
	write("again")
	read("again")
	if g.up.Load() != 14 || g.down.Load() != 14 {
		t.Errorf("%d up, %d down", g.up.Load(), g.down.Load())
	}
}

func TestRoleOf(t *testing.T) {
	for _, c := range []struct {
		args           []string
		agent, inGuest bool
		want           string
	}{
		{[]string{"/x/buildnode", "run", "--data-dir", "d"}, true, false, roleAgent},
		{[]string{"unshare", "--mount"}, true, false, roleAgent},
		{[]string{"/x/tart", "run", "--no-graphics", "id"}, false, false, roleVM},
		{[]string{"tart", "fake-guest", "id"}, false, true, roleGuest},
		{[]string{"sleep", "1"}, false, true, roleGuest},
		{[]string{"/x/tart", "exec", "-i", "id", "true"}, false, false, roleCall},
		{[]string{"/x/buildnode", "forward", "d/tart"}, false, false, roleForwarder},
		{[]string{"/x/buildnode", "vm", "import"}, false, false, ""},
	} {
		if got := roleOf(c.args, c.agent, c.inGuest); got != c.want {
			t.Errorf("%q is %q, want %q", c.args, got, c.want)
		}
	}
}
