//go:build linux

package qemu_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/qemu"
)

// text is a log that many goroutines write to.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// A client that connects to a screen and sends nothing does not keep other clients out for long,
// and the password is never logged.
func TestScreenIsBounded(t *testing.T) {
	t.Parallel()
	var log text
	d, err := qemu.Open(t.Context(),
		qemu.Options{
			Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	spec := warmSpec(t)
	spec.VNC = &hv.VNC{Password: "hunter2"}
	defer remove(t, d, spec.ID)
	vm, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", vm.VNCPort)
	const many = 24
	var lines []net.Conn
	for range many {
		c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lines = append(lines, c)
	}
	closed := make(chan struct{}, many)
	for _, c := range lines {
		go func() {
			_, _ = io.Copy(io.Discard, c)
			closed <- struct{}{}
		}()
	}
	for range many - 9 {
		select {
		case <-closed:
		case <-time.After(time.Minute):
			t.Fatal("the silent connections stay open")
		}
	}
	if len(closed) >= 9 {
		t.Error("no silent connection stays open")
	}
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", vm.PID))
	if err != nil || bytes.Contains(args, []byte("hunter2")) {
		t.Errorf("the password is among QEMU's arguments: %v", err)
	}
	if err := d.Stop(t.Context(), spec.ID, hv.StopForce); err != nil {
		t.Fatal(err)
	}
	if c, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", address); err == nil {
		_ = c.Close()
		t.Error("the port of a stopped VM is open")
	}
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the password is in the log: %s", log.String())
	}
	busy, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	spec.VNC.Port = busy.Addr().(*net.TCPAddr).Port
	if _, err := d.Start(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "VNC port") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a port that is in use: %v", err)
	}
}
