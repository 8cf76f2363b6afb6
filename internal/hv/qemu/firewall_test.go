//go:build linux

package qemu_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/guesttest"
	"github.com/buildyard/buildyard/internal/hv/qemu"
)

const (
	namespaceChild = "BUILDYARD_QEMU_NAMESPACE_CHILD"

	hostAddress = "192.0.2.1"       // the host has it in addition to 127.0.0.1
	outside     = "198.51.100.2"    // another machine
	credentials = "169.254.169.254" // where a cloud serves the host's credentials
	resolver    = "127.0.0.53"
)

// Guests and the network of their host, in a separate network namespace that also contains another
// machine: see TestIsolationChild.
func TestIsolation(t *testing.T) {
	t.Parallel()
	guesttest.Disk(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can make a network and a firewall")
	}
	for _, tool := range []string{"nft", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is not installed; scripts/need.sh test does that", tool)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "nft", "list", "ruleset").CombinedOutput(); err != nil {
		t.Skipf("no nftables in this kernel: %v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestIsolationChild$", "-test.v")
	spec, err := json.Marshal(warmSpec(t)) // and the turn is this process's
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), namespaceChild+"="+string(spec))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET |
		syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestIsolationChild")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestIsolationChild runs inside the namespaces that TestIsolation has made.
func TestIsolationChild(t *testing.T) {
	if os.Getenv(namespaceChild) == "" {
		t.Skip("only as a child process")
	}
	var first hv.Spec
	if err := json.Unmarshal([]byte(os.Getenv(namespaceChild)), &first); err != nil {
		t.Fatal(err)
	}
	net := newNetwork(t)
	opt := qemu.Options{Dir: t.TempDir()}
	opt.GuardEvery(time.Hour)
	reopen := func() *qemu.Driver { return openWith(t, opt) } // closed with the whole test
	d := reopen()
	if h, _ := d.Describe(t.Context()); !h.HasCapability(hv.CanIsolate) {
		t.Fatal("no firewall could be set up")
	}
	first.Ports = []hv.PortRule{{Name: "ssh", GuestPort: 22}}
	first.NeedNetwork = true
	vm, err := d.Start(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { deleteAll(t, d) }()
	port := vm.Ports[0].HostPort
	saved, err := d.Save(t.Context(), first.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true})
	if err != nil {
		t.Fatal(err)
	}
	second := cloneSpec(first, saved) // resumes from that save, without port rules
	second.NeedNetwork = true

	t.Run("kept off the host", func(t *testing.T) {
		net.guarded(t, d, first.ID)
		if n := net.packets(t, d, first.ID); n != 0 {
			t.Errorf("%d of the guest's packets came to the host's loopback", n)
		}
	})
	t.Run("names", func(t *testing.T) { net.resolves(t, d, first.ID) })
	t.Run("port rules", func(t *testing.T) {
		for _, address := range []string{"127.0.0.1", hostAddress} {
			greeted(t, (&net.dialer).Dial, address, port)
		}
		greeted(t, net.outsideDial, "198.51.100.1", port)
	})
	t.Run("nobody else", closesAreHeard)
	t.Run("idempotent and kept", func(t *testing.T) {
		before := ruleset(t)
		for range 2 {
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if after := ruleset(t); after != before || strings.Count(after, "reject") != 2 {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			d = reopen()
		}
	})
	t.Run("without the rules", func(t *testing.T) { // the rules refuse what is refused above
		dropRules(t)
		if got := net.reached(t, d, first.ID); len(got) != len(net.targets) {
			t.Errorf("the guest reaches only %v of %v", got, net.targets)
		}
		if net.packets(t, d, first.ID) == 0 {
			t.Error("none of the guest's packets came to the host's loopback")
		}
	})
	t.Run("put back by a start", func(t *testing.T) {
		if _, err := d.Start(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		net.guarded(t, d, first.ID)
	})
	t.Run("guest to guest", func(t *testing.T) { // not through the host's own addresses
		ask := fmt.Sprintf("nc -w 5 %s %d </dev/null", hostAddress, port)
		if out := inGuest(t, d, second.ID, ask); strings.Contains(out, "SSH-") {
			t.Error("another guest of the host reaches the port rule")
		}
		dropRules(t)
		if out := inGuest(t, d, second.ID, ask); !strings.Contains(out, "SSH-") {
			t.Errorf("without the rules another guest does not reach it: %s", out)
		}
	})
	t.Run("put back while VMs run", func(t *testing.T) {
		_ = d.Close()
		opt.GuardEvery(20 * time.Millisecond)
		d = reopen()
		before := ruleset(t)
		dropRules(t)
		for end := time.Now().Add(time.Minute); ruleset(t) != before; {
			if time.Now().After(end) {
				t.Fatal("the rules are not put back")
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// guarded checks that the guest receives only the responses of those servers that the rules permit.
func (n *network) guarded(t *testing.T, d *qemu.Driver, id string) {
	t.Helper()
	got := n.reached(t, d, id)
	for target, want := range n.targets {
		if got[target] != want.guarded {
			t.Errorf("the guest reaches %s: %v", target, got[target])
		}
	}
}

// reached returns the servers whose response the guest received.
func (n *network) reached(t *testing.T, d *qemu.Driver, id string) map[string]bool {
	t.Helper()
	script := ""
	for target := range n.targets {
		host, port, _ := strings.Cut(target, ":")
		script += fmt.Sprintf("echo %s $(nc -w 5 %s %s </dev/null)\n", target, host, port)
	}
	got := map[string]bool{}
	for line := range strings.Lines(inGuest(t, d, id, script)) {
		if target, found := strings.CutSuffix(line, " reached\n"); found {
			got[target] = true
		}
	}
	return got
}

func inGuest(t *testing.T, d *qemu.Driver, id, script string) string {
	t.Helper()
	r, err := d.Exec(t.Context(), id, hv.ScriptCommand([]byte(script), time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return string(r.Stdout) + string(r.Stderr)
}

// greeted checks the banner of the guest's SSH server.
func greeted(t *testing.T, dial func(network, address string) (net.Conn, error), address string, port int) {
	t.Helper()
	c, err := dial("tcp4", fmt.Sprintf("%s:%d", address, port))
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 4)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "SSH-" {
		t.Errorf("port rule at %s: %q, %v", address, b, err)
	}
}

func ruleset(t *testing.T) string {
	out, err := exec.CommandContext(t.Context(), "nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func dropRules(t *testing.T) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "nft", "delete", "table", "inet",
		"buildyard").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func openWith(t *testing.T, opt qemu.Options) *qemu.Driver {
	t.Helper()
	d, err := qemu.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// A host on which no rules can be set up does not report the ability, logs that, and starts nothing
// when the rules are required.
func TestNoFirewall(t *testing.T) {
	image := guesttest.Disk(t)
	var log lines
	opt := qemu.Options{Dir: t.TempDir(), RequireIsolation: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	opt.Firewall("/bin/false")
	d := openWith(t, opt)
	if h, err := d.Describe(t.Context()); err != nil || h.HasCapability(hv.CanIsolate) {
		t.Errorf("Describe: %+v, %v", h, err)
	}
	if s := log.String(); !strings.Contains(s, "guests are not isolated from this node") ||
		!strings.Contains(s, "why=") ||
		!strings.Contains(s, "do=") {
		t.Errorf("logged: %s", s)
	}
	spec := newSpec(image, "qcow2")
	defer remove(t, d, spec.ID)
	if vm, err := d.Start(t.Context(), spec); err == nil ||
		!strings.Contains(err.Error(), "isolated from the services of this node") {
		t.Errorf("Start: %+v, %v", vm, err)
	}
}

// lines is a log that is read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
