package forward

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// inProcess serves one rule in this process, with a limit of connections, and returns its port.
func inProcess(t *testing.T, d Dialer, limit int) int {
	t.Helper()
	s := newServer(d, slog.New(slog.DiscardHandler), limit)
	var p Ports
	if err := s.listen(t.Context(), Config{Rules: []hv.PortRule{sshRule(1)}}, &p); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.serve(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-served
	})
	return p.Rules[0].HostPort
}

// guestAt is a VM whose ports are all one port of the host. 0 is none.
type guestAt int

func (g guestAt) DialGuest(ctx context.Context, _ int) (GuestConn, error) {
	if g == 0 {
		return nil, errors.New("no guest")
	}
	return loopbackGuest{}.DialGuest(ctx, int(g))
}

func (g guestAt) DialScreen(context.Context) (net.Conn, string, error) {
	return nil, "", errors.New("none")
}
func (g guestAt) Running() bool { return true }

// plainConn hides that a connection is one of TCP, so that its bytes cannot be spliced.
type plainConn struct{ c *net.TCPConn }

func (p plainConn) Read(b []byte) (int, error)  { return p.c.Read(b) }
func (p plainConn) Write(b []byte) (int, error) { return p.c.Write(b) }
func (p plainConn) Close() error                { return p.c.Close() }
func (p plainConn) CloseWrite() error           { return p.c.CloseWrite() }

type plainGuest struct{ guestAt }

func (g plainGuest) DialGuest(ctx context.Context, port int) (GuestConn, error) {
	c, err := g.guestAt.DialGuest(ctx, port)
	if err != nil {
		return nil, err
	}
	return plainConn{c.(*net.TCPConn)}, nil
}

// The end of what a client sends reaches the guest, which then answers: 100 MB and their digest.
func TestHalfCloseAndVolume(t *testing.T) {
	const size = 100 << 20
	guest := guestAt(serve(t, func(c *net.TCPConn) {
		h := sha256.New()
		if _, err := io.Copy(h, c); err == nil {
			_, _ = c.Write(h.Sum(nil))
		}
	}))
	for name, d := range map[string]Dialer{"TCP": guest, "stream": plainGuest{guest}} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, inProcess(t, d, 2))
			h := sha256.New()
			random := rand.NewChaCha8([32]byte{})
			if n, err := io.CopyN(io.MultiWriter(c, h), random, size); err != nil {
				t.Fatalf("%d bytes, %v", n, err)
			}
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(c); err != nil || string(got) != string(h.Sum(nil)) {
				t.Errorf("digest %x, %v, want %x", got, err, h.Sum(nil))
			}
		})
	}
}

// The end of what the guest sends reaches the client, which may go on sending.
func TestGuestHalfCloses(t *testing.T) {
	received := make(chan string, 1)
	port := serve(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("hello"))
		_ = c.CloseWrite()
		b, _ := io.ReadAll(c)
		received <- string(b)
	})
	c := dial(t, inProcess(t, guestAt(port), 1))
	if b, err := io.ReadAll(c); err != nil || string(b) != "hello" {
		t.Errorf("the client got %q, %v", b, err)
	}
	if _, err := c.Write([]byte("still here")); err != nil {
		t.Error(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	if got := <-received; got != "still here" {
		t.Errorf("the guest got %q", got)
	}
}

// A guest port that cannot be reached is a reset connection, not an empty answer.
func TestGuestNotReached(t *testing.T) {
	if _, err := readByte(inProcess(t, guestAt(0), 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset connection", err)
	}
}

// readByte connects to a port and reads one byte. The connection may be reset before it is established
// for its client. The caller closes it.
func readByte(port int) (net.Conn, error) {
	c, err := net.Dial("tcp4", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	_, err = io.ReadFull(c, make([]byte, 1))
	if err != nil {
		_ = c.Close()
	}
	return c, err
}

// Connections over the limit are reset; one that ends makes place for another.
func TestConnectionLimit(t *testing.T) {
	const limit = 3
	port := serve(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("x"))
		_, _ = io.Copy(io.Discard, c) // until the client ends
	})
	forwarded := inProcess(t, guestAt(port), limit)
	var open []net.Conn
	for range limit {
		c, err := readByte(forwarded)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
	}
	if _, err := readByte(forwarded); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("over the limit: %v", err)
	}
	open[0].Close()
	await(t, "a connection after another has ended", func() bool {
		c, err := readByte(forwarded)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func TestConfigIsRefused(t *testing.T) {
	for want, c := range map[string]Config{
		`port rule "dns": udp cannot be forwarded`: {
			Rules: []hv.PortRule{{Name: "dns", GuestPort: 53, Protocol: "udp"}},
		},
		`port rule "a": guest port 0`:       {Rules: []hv.PortRule{{Name: "a"}}},
		`port rule "a": host address "::1"`: {Rules: []hv.PortRule{{Name: "a", GuestPort: 1, HostIP: "::1"}}},
		"257 port rules":                    {Rules: make([]hv.PortRule, hv.MaxPorts+1)},
		"VNC port 65536":                    {VNC: &VNCConfig{Port: 65536}},
	} {
		dir := t.TempDir()
		if err := WriteConfig(dir, c); !errors.Is(err, hv.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("write: %v, want %s", err, want)
		}
		if err := writeJSON(dir, configFile, c); err != nil {
			t.Fatal(err)
		}
		if _, err := Start(t.Context(), options(dir)); !errors.Is(err, hv.ErrRefused) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("start: %v, want %s", err, want)
		}
	}
	if _, err := Start(t.Context(), options(t.TempDir())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
}

func TestPasswordFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	for text, c := range map[string]struct {
		mode os.FileMode
		want string
	}{
		"secret\n": {0o640, "has the mode 0640: want 0600"}, "\n": {0o600, "has 0 bytes: want 1-8"},
		"123456789": {0o600, "has 9 bytes: want 1-8"},
	} {
		name := filepath.Join(dir, "vnc")
		if err := errors.Join(os.WriteFile(name, []byte(text), 0o600), os.Chmod(name, c.mode)); err != nil {
			t.Fatal(err)
		}
		if _, err := readPassword(dir, "vnc"); err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %s", text, err, c.want)
		}
	}
	if _, err := readPassword(dir, "../vnc"); err == nil {
		t.Error("a file of another directory was read")
	}
}
