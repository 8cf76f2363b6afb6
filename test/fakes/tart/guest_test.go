package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

// TestExec has the exit codes, of which 1 and 2 are also those of tart itself.
func TestExec(t *testing.T) {
	h := newHost(t)
	h.create("a")
	h.start("a")
	for _, c := range []struct {
		script, stdout, stderr string
		code                   int
	}{
		{"echo out; echo err >&2; exit 7", "out\n", "err\n", 7},
		{"exit 1", "", "", 1},
		{"exit 2", "", "", 2},
		{"kill -9 $$", "", "", 255},
		{"cat", "", "", 0},
		{"echo $HOME; echo $TMPDIR", "/.guest/tmp\n", "", 0},
		{"sudo -n -u admin A=1 sh -c 'echo $A'", "1\n", "", 0},
		{"/usr/bin/sudo -n true", "", "", 0},
		{
			"yes | /usr/bin/sudo -n /usr/sbin/diskutil repairDisk disk0", "Finished partition map repair on disk0\n",
			"", 0,
		},
		{"diskutil info disk0", "(1000000000 Bytes) (exactly 1953125 512-Byte-Units)\n", "", 0},
		{
			"/usr/sbin/sysctl -n hw.ncpu hw.memsize; uname -sm; sw_vers -productVersion",
			"4\n8589934592\nDarwin arm64\n14.5\n", "", 0,
		},
		{"systemctl poweroff", "", "this program does not exist in the guest\n", 1},
	} {
		stdout, stderr, code := h.call("exec", "a", "/bin/sh", "-c", c.script)
		if !strings.HasSuffix(stdout, c.stdout) || stderr != c.stderr || code != c.code {
			t.Errorf("%q: %q, %q, %d, want %q, %q, %d", c.script, stdout, stderr, code, c.stdout, c.stderr, c.code)
		}
	}
	if _, stderr, code := h.call("exec", "a", "nosuch"); code != 1 || stderr == "" {
		t.Errorf("a missing program: %q, %d", stderr, code)
	}
	if stdout, _, _ := h.call("exec", "-t", "a", "/bin/sh", "-c", "echo err >&2"); stdout != "err\n" {
		t.Errorf("exec -t: %q", stdout)
	}
}

func TestExecInput(t *testing.T) {
	h := newHost(t)
	h.create("a")
	h.start("a")
	const size = 8 << 20
	c := h.command("exec", "-i", "a", "/bin/sh", "-c", "wc -c; echo rest")
	c.Stdin = io.LimitReader(zeros{}, size)
	if r, err := cliproc.Run(t.Context(), c); err != nil || string(r.Stdout) != fmt.Sprintf("%d\nrest\n", size) {
		t.Errorf("%q, %v", r.Stdout, err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestExecWaitsForOutputs: a background child that holds an output delays the end.
func TestExecWaitsForOutputs(t *testing.T) {
	h := newHost(t)
	h.create("a")
	h.start("a")
	const script = "(while ! test -e $HOME/go; do sleep 0.05; done; echo child) & echo parent"
	done := make(chan string, 1)
	go func() {
		r, err := cliproc.Run(t.Context(), h.command("exec", "a", "/bin/sh", "-c", script))
		done <- fmt.Sprintf("%s%v", r.Stdout, err)
	}()
	h.shell("a", "sleep 0.5")
	select {
	case got := <-done:
		t.Fatalf("exec has not waited for the child: %q", got)
	default:
	}
	h.shell("a", "touch $HOME/go")
	if got := <-done; got != "parent\nchild\n<nil>" {
		t.Errorf("%q", got)
	}
}

// TestClientEnds: when the client ends, the direct child is killed and its child is not.
func TestClientEnds(t *testing.T) {
	h := newHost(t)
	h.create("a")
	h.start("a")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		const script = "sleep 600 & echo $! >$HOME/child; echo $$ >$HOME/direct; wait"
		_, _ = cliproc.Run(ctx, h.command("exec", "a", "/bin/sh", "-c", script))
	}()
	pid := func(name string) int {
		text, _ := os.ReadFile(filepath.Join(h.file("a", ".guest/home"), name))
		n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return n
	}
	h.eventually("the command runs", func() bool { return pid("direct") > 0 })
	cancel()
	<-done
	h.eventually("the direct child has ended", func() bool {
		_, err := cliproc.Find(pid("direct"))
		return errors.Is(err, cliproc.ErrEnded)
	})
	if _, err := cliproc.Find(pid("child")); err != nil {
		t.Error("the child of the direct child has ended too:", err)
	}
}

// TestPersistence: an orderly shutdown writes the files to the disk, pulling the plug does not, and a boot without
// changes leaves the disk as it was.
func TestPersistence(t *testing.T) {
	h := newHost(t)
	h.create("a")
	h.knob("interrupt-delay", "0") // a stop that comes too early would be lost
	read := func() []byte {
		disk := make([]byte, 4<<20)
		f, err := os.Open(h.file("a", diskFile))
		if err == nil {
			_, err = f.ReadAt(disk, 0)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		return disk
	}
	empty := read()
	p := h.start("a")
	h.shell("a", "mkdir -p d && echo kept >d/f && ln -s d/f l && echo x >$TMPDIR/gone")
	h.shutDown("a", p)
	written := read()
	if bytes.Equal(empty, written) || !bytes.Contains(written, []byte("kept")) {
		t.Error("the disk does not have the file")
	}
	p = h.start("a")
	if got := h.shell("a", "cat l; ls $TMPDIR"); got != "kept\n" {
		t.Errorf("after a boot: %q", got)
	}
	h.shutDown("a", p)
	if !bytes.Equal(written, read()) {
		t.Error("a boot without changes has changed the disk")
	}
	p = h.start("a")
	h.shell("a", "echo synced >s; sync; echo lost >lost; rm d/f")
	h.must("stop", "a", "--timeout", "30")
	h.awaitEnd(p)
	h.golden("run-stop.golden", h.log("a")[strings.LastIndex(strings.TrimSpace(h.log("a")), "\n")+1:])
	h.start("a")
	if got := h.shell("a", "cat s d/f; ls lost 2>&1 >/dev/null | wc -l"); got != "synced\nkept\n1\n" {
		t.Errorf("after the plug was pulled: %q", got)
	}
}

func TestSuspend(t *testing.T) {
	h := newHost(t)
	h.create("a")
	p := h.start("a", "--suspendable")
	h.shell("a", "echo state >f")
	h.must("suspend", "a")
	h.awaitEnd(p)
	if got := h.must("list"); !strings.Contains(got, "suspended") {
		t.Errorf("list: %s", got)
	}
	h.start("a", "--suspendable")
	if got := h.shell("a", "cat f"); got != "state\n" {
		t.Errorf("after the resume: %q", got)
	}
	h.golden("run-resume.golden", h.log("a"))
	if exists(h.file("a", stateFile)) {
		t.Error("the state is still there")
	}
}

// TestKilledVM: nothing of a guest survives the process that runs it, not even a session of its own.
func TestKilledVM(t *testing.T) {
	h := newHost(t)
	h.create("a")
	p := h.start("a")
	h.shell("a", "setsid sleep 600 >/dev/null 2>&1 </dev/null & sleep 0.1")
	if len(h.processes()) < 2 {
		t.Fatal("the command does not run")
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	h.eventually("the guest's processes have ended", func() bool { return len(h.processes()) == 0 })
	h.start("a")
}

// TestInterruptIsIgnoredAtFirst: stop has to kill a VM that has just been started.
func TestInterruptIsIgnoredAtFirst(t *testing.T) {
	h := newHost(t)
	h.create("a")
	h.knob("interrupt-delay", "600")
	p := h.start("a")
	if err := p.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	h.must("exec", "a", "true")
	h.must("stop", "-t", "1", "a")
	h.awaitEnd(p)
	if h.log("a") != "" {
		t.Errorf("the VM has handled the signal: %q", h.log("a"))
	}
}

// TestLimit: two VMs of all homes, and a slot that stays taken after a clean stop.
func TestLimit(t *testing.T) {
	h := newHost(t)
	h.create("a", "b", "c")
	p := h.start("a")
	h.knob("b/slot-held", "600")
	b := h.start("b")
	h.awaitEnd(h.run("c"))
	h.golden("run-limit.golden", h.log("c"))

	other := &host{T: t, dir: h.dir, home: filepath.Join(h.dir, "other"), program: h.program}
	other.create("d")
	_, stderr, code := other.call("run", "d")
	if code != 1 {
		t.Errorf("a third VM of another home: code %d", code)
	}
	h.golden("run-limit-unknown.golden", stderr)

	h.shutDown("b", b)
	h.shutDown("a", p)
	h.start("a")
	if _, _, code := h.call("run", "c"); code != 1 {
		t.Errorf("the slot of a clean stop is free: code %d", code)
	}
}

// TestSameMAC: the VM that is started later gets another address.
func TestSameMAC(t *testing.T) {
	h := newHost(t)
	h.create("a", "b")
	config, err := os.ReadFile(h.file("a", configFile))
	if err == nil {
		err = os.WriteFile(h.file("b", configFile), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	h.start("a")
	p := h.start("b")
	h.golden("run-mac.golden", h.log("b"))
	if pid, err := cliproc.LockOwner(h.file("b", configFile)); err != nil || pid != p.PID {
		t.Errorf("rewriting has dropped the lock: %d, %v", pid, err)
	}
	if h.must("ip", "a") == h.must("ip", "b") {
		t.Error("both have the same address")
	}
}

// TestKnobs has the failures of run, with its last line and exit code.
func TestKnobs(t *testing.T) {
	for _, c := range []struct {
		knob, value, golden string
		code                int
		options             []string
	}{
		{"vz-error", "1", "run-vz1.golden", 1, nil},
		{"vz-error", "2", "run-vz2.golden", 1, nil},
		{"no-softnet", "", "run-softnet.golden", 1, []string{"--net-softnet"}},
		{"no-softnet", "", "run-softnet.golden", 1, []string{"--net-host"}},
		{"screen-share-wait", "0", "run-vnc.golden", 1, []string{"--vnc"}},
		{"crash", "0.1", "run-crash.golden", 0, nil},
		{"network-error", "0.1", "run-network.golden", 0, nil},
	} {
		t.Run(c.knob+c.value, func(t *testing.T) {
			h := newHost(t)
			h.create("a")
			h.knob(c.knob, c.value)
			stdout, stderr, code := h.call(append([]string{"run", "a", "--no-graphics"}, c.options...)...)
			if code != c.code {
				t.Errorf("code %d, want %d", code, c.code)
			}
			h.golden(c.golden, stdout+stderr)
		})
	}
}

func TestIgnoredShutdownAndHang(t *testing.T) {
	h := newHost(t)
	h.create("a")
	p := h.start("a")
	h.knob("a/ignore-shutdown", "")
	h.knob("hang", "ip list")
	h.must("exec", "a", "sudo", "-n", "shutdown", "-h", "now")
	c := h.command("list")
	c.Timeout = time.Second
	if _, err := cliproc.Run(t.Context(), c); !errors.Is(err, cliproc.ErrTimedOut) {
		t.Errorf("list does not hang: %v", err)
	}
	if h.must("exec", "a", "true"); !p.IsAlive() {
		t.Error("the guest has not ignored its shutdown")
	}
}

func TestReboot(t *testing.T) {
	h := newHost(t)
	h.create("a")
	p := h.start("a")
	h.shell("a", "echo kept >f; echo x >$TMPDIR/gone")
	_, _, _ = h.call("exec", "a", "/usr/bin/sudo", "/sbin/shutdown", "-r", "now") // 255 if it ends before its answer
	h.eventually("the guest has booted again", func() bool {
		out, _, code := h.call("exec", "a", "/bin/sh", "-c", "cat f; ls $TMPDIR")
		return code == 0 && out == "kept\n"
	})
	if !p.IsAlive() {
		t.Error("the VM has ended")
	}
}

// TestServices: a port of the guest by nc, and a command by SSH.
func TestServices(t *testing.T) {
	h := newHost(t)
	h.create("a")
	port := freePort(t)
	h.knob("echo-port", freePort(t))
	h.knob("ssh", port)
	h.start("a")
	address := strings.TrimSpace(h.must("ip", "a", "--wait", "30"))
	echoPort, _ := os.ReadFile(filepath.Join(h.dir, "tart-knobs", "echo-port"))
	c := h.command("exec", "-i", "a", "/usr/bin/nc", "127.0.0.1", strings.TrimSpace(string(echoPort)))
	h.eventually("the port answers", func() bool {
		c.Stdin = strings.NewReader("hello")
		r, err := cliproc.Run(t.Context(), c)
		return err == nil && string(r.Stdout) == "hello"
	})
	for name, method := range map[string]ssh.AuthMethod{
		"password": ssh.Password("admin"),
		"keyboard": ssh.KeyboardInteractive(func(_, _ string, asked []string, _ []bool) ([]string, error) {
			return []string{"admin", "", ""}[:len(asked)], nil
		}),
	} {
		out, code := overSSH(t, net.JoinHostPort(address, port), method)
		if out != "hi\n" || code != 3 {
			t.Errorf("%s: %q, %d", name, out, code)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.64.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func overSSH(t *testing.T, address string, method ssh.AuthMethod) (out string, code int) {
	t.Helper()
	client, err := ssh.Dial("tcp", address, &ssh.ClientConfig{
		User: "admin", Auth: []ssh.AuthMethod{method}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	session.Stdin = strings.NewReader("hi\n")
	got, err := session.Output("cat; exit 3")
	if exit, ok := errors.AsType[*ssh.ExitError](err); ok {
		code = exit.ExitStatus()
	}
	return string(got), code
}
