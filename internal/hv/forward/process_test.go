package forward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/internal/hv/rfb"
)

// The test program is also the forwarder and a starter of one, as this variable says.
const (
	roleVariable  = "FORWARD_TEST_ROLE"
	dirVariable   = "FORWARD_TEST_DIR"
	roleForwarder = "forwarder"
	roleStarter   = "starter"
)

const (
	runningFile = "running"       // the test VM runs while it exists
	screenFile  = "screen"        // the address of its VNC server
	pidRecord   = "pid"           // written by a program that opens no ports
	patience    = 2 * time.Minute // for a condition that is sure to come
	serverWord  = "server-pw"     // the password of the VNC server
	loopback    = "127.0.0.1"
)

func TestMain(m *testing.M) {
	dir := os.Getenv(dirVariable)
	switch os.Getenv(roleVariable) {
	case roleForwarder:
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		if err := Main(context.Background(), dir, loopbackGuest{dir}, log); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case roleStarter:
		if _, err := Start(context.Background(), options(dir)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("started")
		select {}
	}
	os.Exit(m.Run())
}

// loopbackGuest is a VM whose ports are those of the host.
type loopbackGuest struct{ dir string }

func (g loopbackGuest) DialGuest(ctx context.Context, port int) (GuestConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp4", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

func (g loopbackGuest) DialScreen(ctx context.Context) (net.Conn, string, error) {
	address, err := os.ReadFile(filepath.Join(g.dir, screenFile))
	if err != nil {
		return nil, "", err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp4", string(address))
	return c, serverWord, err
}

func (g loopbackGuest) Running() bool {
	_, err := os.Stat(filepath.Join(g.dir, runningFile))
	return err == nil
}

func options(dir string) StartOptions {
	return StartOptions{
		Dir: dir, Program: []string{os.Args[0]},
		Env: []string{roleVariable + "=" + roleForwarder, dirVariable + "=" + dir},
	}
}

// newVM returns the directory of a running test VM, whose forwarder ends with the test.
func newVM(t *testing.T, c Config) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, runningFile, "")
	if err := WriteConfig(dir, c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Stop(context.Background(), dir); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of the forwarder: %s", logTail(dir))
		}
	})
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, dir string) Ports {
	t.Helper()
	p, err := Start(t.Context(), options(dir))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %s: %s", patience, what)
		}
	}
}

// greeter is a guest's server that writes a line to each client. It returns its port.
func greeter(t *testing.T, line string) int {
	return serve(t, func(c *net.TCPConn) { _, _ = c.Write([]byte(line)) })
}

// serve handles the connections to a new port until the end of the test.
func serve(t *testing.T, handle func(*net.TCPConn)) int {
	t.Helper()
	l, err := net.Listen("tcp4", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			}()
		}
	}()
	return portOf(l)
}

func dial(t *testing.T, port int) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp4", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

func expectGreeting(t *testing.T, port int, want string) {
	t.Helper()
	var got bytes.Buffer
	if _, err := got.ReadFrom(dial(t, port)); err != nil || got.String() != want {
		t.Errorf("port %d: %q, %v, want %q", port, got.String(), err, want)
	}
}

func sshRule(guestPort int) hv.PortRule {
	return hv.PortRule{Name: "ssh", GuestPort: guestPort, HostIP: loopback}
}

// Automatic ports begin at 10000 and differ; a second start finds the forwarder of the first.
func TestStart(t *testing.T) {
	one, two := greeter(t, "one"), greeter(t, "two")
	dir := newVM(t, Config{Rules: []hv.PortRule{sshRule(one), {Name: "web", GuestPort: two, Protocol: "tcp"}}})
	p := start(t, dir)
	if len(p.Rules) != 2 || p.Rules[0].HostPort < hv.FirstHostPort || p.Rules[1].HostPort < hv.FirstHostPort ||
		p.Rules[0].HostPort == p.Rules[1].HostPort || p.Rules[1].HostIP != hv.AnyIPv4 || p.VNCPort != 0 {
		t.Fatalf("ports: %+v", p)
	}
	expectGreeting(t, p.Rules[0].HostPort, "one")
	expectGreeting(t, p.Rules[1].HostPort, "two")

	again := start(t, dir)
	if again.PID != p.PID || again.Rules[0] != p.Rules[0] {
		t.Errorf("the second start: %+v, want %+v", again, p)
	}
	if read, err := ReadPorts(dir); err != nil || read.PID != p.PID {
		t.Errorf("read: %+v, %v", read, err)
	}

	if err := Stop(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	read, err := ReadPorts(dir)
	if !errors.Is(err, ErrNotRunning) || len(read.Rules) != 2 || read.Rules[0] != p.Rules[0] {
		t.Errorf("after the stop: %+v, %v", read, err)
	}
	if err := Stop(t.Context(), dir); err != nil {
		t.Errorf("a second stop: %v", err)
	}
}

// kill -9 of the starting process, with its whole session, leaves the forwarder.
func TestStarterKilled(t *testing.T) {
	dir := newVM(t, Config{Rules: []hv.PortRule{sshRule(greeter(t, "here"))}})
	starter := exec.Command(os.Args[0])
	starter.Env = []string{roleVariable + "=" + roleStarter, dirVariable + "=" + dir}
	starter.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 100)
	n, _ := out.Read(line)
	if err := syscall.Kill(-starter.Process.Pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	_ = starter.Wait()
	if string(line[:n]) != "started\n" {
		t.Fatalf("the starter printed %q", line[:n])
	}

	p, err := ReadPorts(dir)
	if err != nil {
		t.Fatal(err)
	}
	expectGreeting(t, p.Rules[0].HostPort, "here")
}

// unusedPort returns a port that the system assigns, which is above those that forwarders try first.
func unusedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// kill -9 of the forwarder frees its ports; another one gets the same.
func TestForwarderKilled(t *testing.T) {
	guestPort := greeter(t, "here")
	rule := sshRule(guestPort)
	rule.HostPort = unusedPort(t) // not one that the forwarders of other tests choose as soon as it is free
	dir := newVM(t, Config{Rules: []hv.PortRule{rule}})
	first := start(t, dir)
	expectGreeting(t, first.Rules[0].HostPort, "here")
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, "end of the forwarder", func() bool { return !first.IsAlive() })
	last, err := ReadPorts(dir)
	if !errors.Is(err, ErrNotRunning) {
		t.Fatalf("after the kill: %v", err)
	}

	if err := WriteConfig(dir, Config{Rules: last.Rules}); err != nil {
		t.Fatal(err)
	}
	second := start(t, dir)
	if second.PID == first.PID || second.Rules[0] != first.Rules[0] {
		t.Errorf("the second forwarder: %+v, want the ports of %+v", second, first)
	}
	expectGreeting(t, second.Rules[0].HostPort, "here")
}

// The forwarder ends with its VM, and so do its connections.
func TestEndsWithVM(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	guestPort := serve(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("x"))
		<-hold
	})
	dir := newVM(t, Config{Rules: []hv.PortRule{sshRule(guestPort)}})
	p := start(t, dir)
	c := dial(t, p.Rules[0].HostPort)
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, runningFile)); err != nil {
		t.Fatal(err)
	}
	await(t, "end of the forwarder", func() bool { return !p.IsAlive() })
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection continues: %d, %v", n, err)
	}
	if _, err := ReadPorts(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
}

// A port that cannot be opened is the error of the start; the other ports are free again.
func TestBusyPort(t *testing.T) {
	busy := greeter(t, "another program")
	free, err := net.Listen("tcp4", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	freePort := portOf(free)
	free.Close()
	rules := []hv.PortRule{
		{Name: "first", GuestPort: 1, HostPort: freePort, HostIP: loopback},
		{Name: "web", GuestPort: 80, HostPort: busy, HostIP: loopback},
	}
	dir := newVM(t, Config{Rules: rules})
	_, err = Start(t.Context(), options(dir))
	want := fmt.Sprintf(`port rule "web": host port %d of 127.0.0.1 cannot be opened on this node`, busy)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if p, err := ReadPorts(dir); !errors.Is(err, ErrNotRunning) || !strings.Contains(p.Error, want) {
		t.Errorf("read %+v, %v", p, err)
	}
	if l, err := net.Listen("tcp4", net.JoinHostPort(loopback, strconv.Itoa(freePort))); err != nil {
		t.Errorf("the other port: %v", err)
	} else {
		l.Close()
	}
}

// A program that is not a forwarder is an error with what it printed.
func TestStartFails(t *testing.T) {
	dir := newVM(t, Config{})
	o := options(dir)
	o.Program = []string{"/bin/sh", "-c", "echo no such command >&2; exit 3"}
	if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no such command") {
		t.Errorf("a program that ends: %v", err)
	}

	o.Program = []string{"/bin/sh", "-c", `echo $$ > "$0"; exec sleep 600`, filepath.Join(dir, pidRecord)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if b, err := os.ReadFile(filepath.Join(dir, pidRecord)); err == nil && len(b) > 0 {
				return
			}
		}
	}()
	if _, err := Start(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("a program that opens nothing: %v", err)
	}
	b, err := os.ReadFile(filepath.Join(dir, pidRecord))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cliproc.Find(pid); !errors.Is(err, cliproc.ErrEnded) {
		t.Errorf("the program of a failed start: %v", err)
	}
}

// A process that has the PID of a former forwarder is left alone, whether its lock is free or taken.
func TestReusedPIDIsNotKilled(t *testing.T) {
	other := exec.Command("sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	running, err := cliproc.Find(other.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	former := cliproc.Process{PID: running.PID, StartTime: running.StartTime + 1}
	err = errors.Join(writeJSON(dir, lockFile, former), writeJSON(dir, portsFile, Ports{Process: former}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPorts(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("read: %v", err)
	}
	if err := Stop(t.Context(), dir); err != nil {
		t.Errorf("with a free lock: %v", err)
	}

	lock, err := tryLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*askInterval)
	defer cancel()
	if err := Stop(ctx, dir); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a taken lock: %v", err)
	}
	if !running.IsAlive() {
		t.Error("the process was killed")
	}
}

// The screen has a port from 5900 up and its own password; its server has another one.
func TestScreen(t *testing.T) {
	server := serve(t, func(c *net.TCPConn) {
		if rfb.AcceptViewer(c, serverWord) == nil {
			_, _ = c.Write([]byte("picture"))
		}
	})
	c := Config{VNC: &VNCConfig{Listen: loopback, PasswordFile: "vnc"}}
	dir := newVM(t, c)
	write(t, dir, "vnc", "viewer\n")
	p := start(t, dir)
	if p.VNCPort < hv.FirstVNCPort || p.VNCPort > hv.LastVNCPort {
		t.Fatalf("ports: %+v", p)
	}
	if err := rfb.LogIn(dial(t, p.VNCPort), "viewer"); err == nil || !strings.Contains(err.Error(), rfb.Unavailable) {
		t.Errorf("without a VNC server: %v", err)
	}

	write(t, dir, screenFile, net.JoinHostPort(loopback, strconv.Itoa(server)))
	if err := rfb.LogIn(dial(t, p.VNCPort), serverWord); err == nil {
		t.Error("the server's password opens the port")
	}
	viewer := dial(t, p.VNCPort)
	if err := rfb.LogIn(viewer, "viewer"); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if _, err := got.ReadFrom(viewer); err != nil || got.String() != "picture" {
		t.Errorf("got %q, %v", got.String(), err)
	}
	if log := logTail(dir); strings.Contains(log, serverWord) || !strings.Contains(log, rfb.ErrWrongPassword.Error()) {
		t.Errorf("log: %s", log)
	}
}

// The log file is emptied when it is too long.
func TestLogIsBounded(t *testing.T) {
	dir := newVM(t, Config{})
	start(t, dir)
	name := filepath.Join(dir, logFile)
	if err := os.Truncate(name, maxLogBytes+1); err != nil {
		t.Fatal(err)
	}
	await(t, "an empty log", func() bool {
		info, err := os.Stat(name)
		return err == nil && info.Size() == 0
	})
}
