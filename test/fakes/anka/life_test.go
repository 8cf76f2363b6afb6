package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

// TestRun: the streams and the exit code pass, and a stopped VM is started.
func TestRun(t *testing.T) {
	h := newHost(t)
	h.must("create a 14.5")
	if got := h.shell("a", "echo out; pwd"); !strings.HasPrefix(got, "out\n/") || h.status("a") != running {
		t.Errorf("%q, and the VM is %v", got, h.status("a"))
	}
	c := h.command("run", "-e", "A=1", "a", "/bin/sh", "-c", "cat; echo $A; echo err >&2; exit 7")
	c.Stdin = strings.NewReader("in ")
	if r, err := cliproc.Run(t.Context(), c); string(r.Stdout) != "in 1\n" || string(r.Stderr) != "err\n" ||
		err == nil || !strings.Contains(err.Error(), "exit code 7") {
		t.Errorf("%q, %q, %v", r.Stdout, r.Stderr, err)
	}
	h.knob(knobDisconnect, "")
	_, stderr, code := h.call("run", "a", "true")
	if code != codeDisconnected || stderr != "anka: communication timeout\n" {
		t.Errorf("disconnected: %d, %q", code, stderr)
	}
}

// TestGuestSparesHost: a guest that shuts down ends its VM.
func TestGuestSparesHost(t *testing.T) {
	h := newHost(t)
	h.must("create a 14.5", "start a")
	_, _, _ = h.call("run", "a", "/usr/bin/sudo", "-n", "/sbin/shutdown", "-h", "now")
	h.eventually("the VM has ended", func() bool { return h.status("a") == stopped })
}

// TestPersistence: files outlive an orderly stop, clones and archives have them, and a forced stop loses them.
func TestPersistence(t *testing.T) {
	h := newHost(t)
	archive := filepath.Join(h.home, "a.archive")
	h.must("create a 14.5")
	h.shell("a", "echo kept >$HOME/file")
	h.must("stop a", "clone -c a b", "export a "+archive, "delete --yes a", "import "+archive+" c")
	for _, name := range []string{"b", "c"} {
		if got := h.shell(name, "cat $HOME/file; echo lost >$HOME/file"); got != "kept\n" {
			t.Errorf("%s has %q", name, got)
		}
		h.must("stop --force " + name)
		if got := h.shell(name, "cat $HOME/file"); got != "kept\n" {
			t.Errorf("after a forced stop %s has %q", name, got)
		}
	}
	h.must("suspend b", "reboot c")
	if h.status("b") != suspended || h.status("c") != running {
		t.Errorf("b is %v, c is %v", h.status("b"), h.status("c"))
	}
}

// TestFailedVM: a VM whose process was killed, or whose guest crashed, is stopped by force before anything else.
func TestFailedVM(t *testing.T) {
	h := newHost(t)
	h.must("create a 14.5", "start a")
	pid, _ := h.body("show a")["pid"].(float64)
	p, err := cliproc.Find(int(pid))
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Kill()
	h.eventually("the VM is shown as failed", func() bool { return h.status("a") == failed })
	for _, command := range []string{"start a", "stop a", "delete --yes a"} {
		got, _, code := h.call(strings.Fields("-j " + command)...)
		if code != codeFailure {
			t.Errorf("%q: code %d", command, code)
		}
		h.golden("failed.golden", got)
	}
	h.must("stop -f a")
	h.knob(knobCrash, "0")
	h.must("start a")
	h.eventually("the VM is shown as failed", func() bool { return h.status("a") == failed })
	h.must("stop -f a", "delete --yes a")
}

// TestPorts: rules reach the guest, get free ports of the host, and a port that is taken fails the start.
func TestPorts(t *testing.T) {
	h := newHost(t)
	h.knob(fakeguest.KnobEcho, "7000")
	h.must("create a 14.5", "modify a port echo 7000:127.0.0.1", "start a")
	var port string
	for field := range strings.SplitSeq(h.must("show a network"), ",") {
		if _, after, found := strings.Cut(field, `"host_port":`); found {
			port = strings.Trim(after, "}]")
		}
	}
	h.eventually("the echo server answers", func() bool {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp4", "127.0.0.1:"+port)
		if err != nil {
			return false
		}
		defer c.Close()
		_, _ = fmt.Fprint(c, "hello")
		_ = c.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(c)
		return string(got) == "hello"
	})
	h.must("create b 14.5", "modify b port echo 7000:127.0.0.1:"+port)
	got, _, code := h.call("-j", "start", "b")
	if code != codeFailure || !strings.Contains(got, "No child processes") {
		t.Errorf("a port that is taken: %d, %s", code, got)
	}
}

// TestHalfClone: a clone that was killed is listed and does not start.
func TestHalfClone(t *testing.T) {
	h := newHost(t)
	h.must("create a 14.5")
	h.knob("b/"+knobCloneHold, "")
	p, err := cliproc.StartDetached(h.command("-j", "clone", "a", "b"), os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	h.eventually("the clone is listed", func() bool { return strings.Contains(h.must("list"), `"name":"b"`) })
	_ = p.Kill()
	got, _, code := h.call("-j", "start", "b")
	if code != codeFailure || !strings.Contains(got, "image not found") {
		t.Errorf("the half clone starts: %d, %s", code, got)
	}
	h.must("delete --yes b")
}

// TestLateAddress: show has no address at first.
func TestLateAddress(t *testing.T) {
	h := newHost(t)
	h.must("create a 14.5")
	h.knob(knobNoNetwork, "")
	h.must("start a")
	if ip := h.body("show a")["ip"]; ip != "" {
		t.Errorf("address %v", ip)
	}
	if err := os.Remove(filepath.Join(h.home, "anka-knobs", knobNoNetwork)); err != nil {
		t.Fatal(err)
	}
	if ip, _ := h.body("show a")["ip"].(string); net.ParseIP(ip) == nil {
		t.Errorf("address %v", ip)
	}
}
