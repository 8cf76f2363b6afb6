//go:build linux

package qemu_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/hv/qemu"
)

// network is what is around the guests of TestIsolationChild.
type network struct {
	targets     map[string]target // host:port as the guest asks for it
	dialer      net.Dialer
	outsideDial func(network, address string) (net.Conn, error)

	udp net.PacketConn // on the host's loopback
	dns net.PacketConn // name server of the host
}

type target struct{ guarded bool } // reached although there are rules

// newNetwork sets up the addresses of the host, another machine, and servers on both.
func newNetwork(t *testing.T) *network {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver "+resolver+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(conf, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	n := &network{targets: map[string]target{}, dialer: net.Dialer{Timeout: 15 * time.Second}}
	tid, in := otherMachine(t)
	ip(t, "link set lo up", "address add "+hostAddress+"/32 dev lo",
		fmt.Sprintf("link add here type veth peer name there netns %d", tid),
		"address add 198.51.100.1/24 dev here", "link set here up", "route add "+credentials+"/32 dev here")
	in(func() {
		ip(t, "address add "+outside+"/24 dev there", "address add "+credentials+"/32 dev there", "link set there up",
			"link set lo up")
		n.targets[serve(t, outside, outside)] = target{guarded: true}
		n.targets[serve(t, credentials, credentials)] = target{}
	})
	n.outsideDial = func(kind, address string) (c net.Conn, err error) {
		in(func() { c, err = net.DialTimeout(kind, address, 10*time.Second) })
		return c, err
	}
	n.targets[serve(t, "127.0.0.1", "10.0.2.2")] = target{}
	n.targets[serve(t, "0.0.0.0", "10.0.2.2")] = target{}
	n.targets[serve(t, "0.0.0.0", hostAddress)] = target{}
	n.targets[serve(t, hostAddress, hostAddress)] = target{}
	n.targets[serve(t, "198.51.100.1", "198.51.100.1")] = target{}
	n.udp, n.dns = packets(t, "127.0.0.1:0"), packets(t, resolver+":53")
	return n
}

// otherMachine creates a network namespace and returns the thread that is in it, and how to run
// something in it.
func otherMachine(t *testing.T) (tid int, in func(func())) {
	work, done, ready := make(chan func()), make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		tid = unix.Gettid()
		ready <- err
		for f := range work {
			f()
			done <- struct{}{}
		}
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(work) })
	return tid, func(f func()) {
		work <- f
		<-done
	}
}

func ip(t *testing.T, commands ...string) {
	for _, c := range commands {
		if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			t.Errorf("ip %s: %v: %s", c, err, out)
		}
	}
}

// serve answers each connection to a free port of host, and returns the address for a guest that
// knows the host as seen.
func serve(t *testing.T, host, seen string) string {
	l, err := net.Listen("tcp4", host+":0")
	if err != nil {
		t.Error(err)
		return ""
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "reached\n")
			_ = c.Close()
		}
	}()
	return fmt.Sprintf("%s:%d", seen, l.Addr().(*net.TCPAddr).Port)
}

// closesAreHeard checks that the end of a connection of this host's own programs reaches the other
// side although the socket is closed, and so has no user any longer, before the last bytes are
// read.
func closesAreHeard(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	const most = 64 << 20
	_ = near.SetWriteDeadline(time.Now().Add(time.Second))
	n, err := near.Write(make([]byte, most)) // more than the kernel keeps
	if err == nil || n == most {
		t.Fatalf("%d bytes went into a connection that nobody reads", n)
	}
	_ = near.Close()
	_ = far.SetReadDeadline(time.Now().Add(time.Minute))
	if got, err := io.Copy(io.Discard, far); err != nil || got != int64(n) {
		t.Errorf("of a connection that was closed after %d bytes %d came: %v", n, got, err)
	}
}

func packets(t *testing.T, address string) net.PacketConn {
	t.Helper()
	c, err := net.ListenPacket("udp4", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// packets has the guest send to the host's loopback and counts what comes.
func (n *network) packets(t *testing.T, d *qemu.Driver, id string) (count int) {
	t.Helper()
	port := n.udp.LocalAddr().(*net.UDPAddr).Port
	inGuest(t, d, id, fmt.Sprintf("for i in 1 2 3; do echo x >/dev/udp/10.0.2.2/%d; sleep 0.2; done", port))
	for b := make([]byte, 100); ; count++ {
		_ = n.udp.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, _, err := n.udp.ReadFrom(b); err != nil {
			return count
		}
	}
}

// resolves has the guest ask for a name that the resolver on the host's
// loopback knows.
func (n *network) resolves(t *testing.T, d *qemu.Driver, id string) {
	go func() {
		for b := make([]byte, 1500); ; {
			size, from, err := n.dns.ReadFrom(b)
			if err != nil || size < 17 {
				return
			}
			answer := bytes.Clone(b[:size])
			answer[2], answer[3] = 0x81, 0x80
			if b[size-3] == 1 { // type A
				answer[7] = 1
				answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 198, 51, 100, 77)
			}
			_, _ = n.dns.WriteTo(answer, from)
		}
	}()
	if out := inGuest(t, d, id, "nslookup machine.test 10.0.2.3"); !strings.Contains(out, "198.51.100.77") {
		t.Errorf("the guest's question for a name: %s", out)
	}
}
