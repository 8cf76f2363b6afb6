//go:build linux

package buildyard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/hv/guesttest"
	"github.com/buildyard/buildyard/internal/hv/hvtest"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
	"github.com/buildyard/buildyard/internal/transfer"
)

// TestRealConsole sees the screen of a real guest through the controller: without a password, and
// with one after a restart; it ends with the VM and with the instance.
func TestRealConsole(t *testing.T) {
	fulltest.Only(t) // simulated VMs have the same console, and TestConformance of internal/hv/qemu a real one
	disk := guesttest.Disk(t)
	guesttest.Turn(t, 1)
	y := newYard(t)
	realNode(t, y.service)
	template, err := y.registry.Push(t.Context(), transfer.PushOptions{
		Request: api.PushRequest{Name: "guest", Tag: "v1", Arch: "amd64", Config: json.RawMessage(
			`{"ram":"256M","cpu":{"cores":1},"hard_drives":[{"file":"disk.img","format":"raw"}]}`)},
		Files: []transfer.PushFile{
			{Name: "disk.img", Disk: &diskfile.Disk{Path: disk, Format: "qcow2"}, Kind: api.FileDisk},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewController(y.service.URL(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := y.start(template.ID, "v1")
	limited, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	before, err := c.WaitStarted(limited, id, nil)
	if err != nil {
		t.Fatal(err)
	}
	look := func(password string) net.Conn {
		t.Helper()
		began := time.Now()
		screen, err := c.OpenConsole(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = screen.Close() })
		width, height, err := hvtest.View(screen, password)
		if err != nil || width < 100 || height < 100 {
			t.Errorf("a picture of %d x %d, %v", width, height, err)
		}
		t.Logf("a picture of %d x %d after %s", width, height, time.Since(began).Round(time.Millisecond))
		return screen
	}
	first := look(hvtest.NoPassword)
	if err := c.Restart(t.Context(), client.RestartRequest{InstanceID: id, VNCPassword: "sesame"}); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, first)
	if _, err := c.WaitRestarted(limited, id, before.VMInfo.StartDate); err != nil {
		t.Fatal(err)
	}
	second := look("sesame")
	if err := c.Terminate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, second)
}

// wantEnd waits until a console has ended.
func wantEnd(t *testing.T, screen net.Conn) {
	t.Helper()
	_ = screen.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, screen); errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a console goes on")
	}
}

// TestConsoleOfANodeThatRestarts: the end of the agent ends a console, and the next one shows it.
func TestConsoleOfANodeThatRestarts(t *testing.T) {
	y := newYard(t)
	end := y.nodes("n", 1)
	id := y.start(y.push("", "v1", y.disk(1, 1)).ID, "v1")
	y.await("the instance", func() bool { return y.instance(id).InstanceState == "Started" })
	c, err := client.NewController(y.service.URL(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	look := func() net.Conn {
		screen, err := c.OpenConsole(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := hvtest.View(screen, hvtest.NoPassword); err != nil {
			t.Fatal(err)
		}
		return screen
	}
	screen := look()
	end()
	wantEnd(t, screen)
	y.nodes("n", 1)
	y.await("the node", func() bool { return y.list()[0].State == "Active" })
	_ = look().Close()
}

// TestConsoleCommand: a VNC viewer sees the screen at the address that the command prints, once.
func TestConsoleCommand(t *testing.T) {
	y := newYard(t)
	y.nodes("n", 1)
	id := y.start(y.push("", "v1", y.disk(1, 1)).ID, "v1")
	y.await("the instance", func() bool { return y.instance(id).InstanceState == "Started" })
	t.Setenv("SVC_CONTROLLER", y.service.URL())
	printed, out := io.Pipe()
	done := make(chan int, 1)
	var errs bytes.Buffer
	go func() {
		done <- Main(t.Context(), []string{"instance", "console", id},
			Streams{In: strings.NewReader(""), Out: out, Err: &errs})
		_ = out.Close()
	}()
	line := make([]byte, 200)
	n, err := printed.Read(line)
	at := regexp.MustCompile(`vnc://(127\.0\.0\.1:\d+)`).FindSubmatch(line[:n])
	if err != nil || at == nil {
		t.Fatalf("it prints %q, %v; %s", line[:n], err, errs.String())
	}
	go func() { _, _ = io.Copy(io.Discard, printed) }()
	viewer, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", string(at[1]))
	if err != nil {
		t.Fatal(err)
	}
	if width, height, err := hvtest.View(viewer, hvtest.NoPassword); err != nil || width*height == 0 {
		t.Errorf("a picture of %d x %d, %v", width, height, err)
	}
	if again, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", string(at[1])); err == nil {
		_ = again.Close()
		t.Error("a second viewer is let in")
	}
	_ = viewer.Close()
	if code := <-done; code != 0 {
		t.Errorf("it ends with %d: %s", code, errs.String())
	}
}
