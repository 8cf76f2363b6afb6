package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/internal/hv/clitest"
	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

var fake = clitest.New("tart")

func TestMain(m *testing.M) { fake.Main(m) }

const waitLimit = time.Minute // for a condition that comes true within a second on an idle machine

// host is a directory with a home, knobs, leases and slots.
type host struct {
	*testing.T
	dir, home, program string
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{T: t, dir: t.TempDir()}
	h.home, h.program = filepath.Join(h.dir, "home"), fake.Path(t)
	t.Cleanup(func() { clitest.KillAll(t, h.dir) })
	return h
}

// processes returns the processes that have a file of the host as working directory.
func (h *host) processes() (out []string) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		if dir, err := os.Readlink(link); err == nil && strings.HasPrefix(dir, h.home+"/") {
			out = append(out, link)
		}
	}
	return out
}

func (h *host) eventually(what string, isTrue func() bool) {
	h.Helper()
	for end := time.Now().Add(waitLimit); !isTrue(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.Fatalf("%s: not within %s", what, waitLimit)
		}
	}
}

func (h *host) command(args ...string) cliproc.Command {
	return cliproc.Command{
		Path: h.program, Args: args, Env: []string{"PATH=/usr/bin:/bin", "TART_HOME=" + h.home, "HOME=" + h.dir},
		Timeout: 2 * waitLimit,
	}
}

// call runs a command and returns its outputs and exit code.
func (h *host) call(args ...string) (stdout, stderr string, code int) {
	h.Helper()
	r, err := cliproc.Run(h.Context(), h.command(args...))
	if e, failed := errors.AsType[*cliproc.Error](err); failed {
		if code = e.Code; code < 0 {
			h.Fatal(err)
		}
	}
	return string(r.Stdout), string(r.Stderr), code
}

// must runs a command that succeeds.
func (h *host) must(args ...string) string {
	h.Helper()
	stdout, stderr, code := h.call(args...)
	if code != 0 {
		h.Fatalf("tart %q: code %d: %s", args, code, stderr)
	}
	return stdout
}

// shell runs a script in a guest.
func (h *host) shell(name, script string) string {
	h.Helper()
	return h.must("exec", name, "/bin/sh", "-c", script)
}

func (h *host) knob(name, value string) {
	h.Helper()
	path := filepath.Join(h.dir, "tart-knobs", name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(value+"\n"), 0o600)
	}
	if err != nil {
		h.Fatal(err)
	}
}

// create makes VMs with small disks.
func (h *host) create(names ...string) {
	h.Helper()
	for _, name := range names {
		h.must("create", name, "--from-ipsw", h.program, "--disk-size", "1")
	}
}

func (h *host) file(name, file string) string { return filepath.Join(h.home, "vms", name, file) }

func (h *host) log(name string) string {
	text, _ := os.ReadFile(filepath.Join(h.dir, name+".log"))
	return string(text)
}

// run starts VMs as a driver does.
func (h *host) run(name string, options ...string) cliproc.Process {
	h.Helper()
	args := append([]string{"run", "--no-graphics", "--no-audio", "--no-clipboard", name}, options...)
	p, err := cliproc.StartDetached(h.command(args...), filepath.Join(h.dir, name+".log"))
	if err != nil {
		h.Fatal(err)
	}
	return p
}

// start starts a VM and waits until its agent answers.
func (h *host) start(name string, options ...string) cliproc.Process {
	h.Helper()
	p := h.run(name, options...)
	h.eventually("the guest agent answers", func() bool {
		_, _, code := h.call("exec", name, "/usr/bin/true")
		if code != 0 && !p.IsAlive() {
			h.Fatalf("the VM has ended: %s", h.log(name))
		}
		return code == 0
	})
	return p
}

func (h *host) awaitEnd(p cliproc.Process) {
	h.Helper()
	h.eventually("the VM's process has ended", func() bool { return !p.IsAlive() })
}

// shutDown ends a guest orderly. The guest may end before its answer arrives: then the code is 255.
func (h *host) shutDown(name string, p cliproc.Process) {
	h.Helper()
	_, stderr, code := h.call("exec", name, "sudo", "-n", "/sbin/shutdown", "-h", "now")
	if code != 0 && code != 255 {
		h.Fatalf("shut down %s: code %d: %s", name, code, stderr)
	}
	h.awaitEnd(p)
}

var placeholder = regexp.MustCompile(`<<(.*?)>>`)

// golden compares an output with a file: a first line with its source, then the text, in which <<...>> is a regular
// expression.
func (h *host) golden(file, got string) {
	h.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		h.Fatal(err)
	}
	source, want, _ := strings.Cut(string(text), "\n")
	if !strings.HasPrefix(source, "# source: ") {
		h.Errorf("%s does not name its source", file)
	}
	pattern, rest := "", want
	for at := placeholder.FindStringSubmatchIndex(rest); at != nil; at = placeholder.FindStringSubmatchIndex(rest) {
		pattern += regexp.QuoteMeta(rest[:at[0]]) + "(" + rest[at[2]:at[3]] + ")"
		rest = rest[at[1]:]
	}
	pattern += regexp.QuoteMeta(rest)
	if !regexp.MustCompile(`^` + pattern + `$`).MatchString(got) {
		h.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

func TestOutputs(t *testing.T) {
	h := newHost(t)
	h.create("a")
	h.must("set", "a", "--cpu", "4", "--memory", "8192")
	p := h.start("a", "--vnc-experimental")
	h.create("b")
	for file, args := range map[string][]string{
		"version.golden": {"--version"}, "list.golden": {"list", "--format", "json"},
		"get.golden": {"get", "a", "--format", "json"}, "list-text.golden": {"list"}, "get-text.golden": {"get", "b"},
		"ip.golden": {"ip", "a"}, "list-quiet.golden": {"list", "-q"},
	} {
		h.golden(file, h.must(args...))
	}
	config, err := os.ReadFile(h.file("b", configFile))
	if err != nil {
		t.Fatal(err)
	}
	h.golden("config.golden", string(config))
	leases, _ := os.ReadFile(filepath.Join(h.dir, "dhcpd_leases"))
	h.golden("leases.golden", string(leases))
	h.eventually("the screen is served", func() bool { return strings.Contains(h.log("a"), "vnc://") })
	h.shutDown("a", p)
	h.golden("run-shutdown.golden", h.log("a"))
}

// TestFailures has the exit codes and texts of stderr.
func TestFailures(t *testing.T) {
	h := newHost(t)
	h.create("off")
	h.create("on")
	h.knob("on/agent-delay", fakeguest.Never)
	h.run("on")
	h.eventually("the VM runs", func() bool {
		pid, err := cliproc.LockOwner(h.file("on", configFile))
		return err == nil && pid != 0
	})
	for _, c := range []struct {
		code int
		file string
		args []string
	}{
		{2, "missing.golden", []string{"stop", "nosuch"}},
		{2, "missing.golden", []string{"exec", "nosuch", "true"}},
		{2, "missing.golden", []string{"ip", "nosuch"}},
		{2, "missing.golden", []string{"get", "nosuch"}},
		{2, "missing.golden", []string{"delete", "nosuch"}},
		{1, "run-missing.golden", []string{"run", "nosuch"}},
		{2, "not-running.golden", []string{"stop", "off"}},
		{2, "not-running.golden", []string{"exec", "off", "true"}},
		{2, "run-twice.golden", []string{"run", "on"}},
		{1, "delete-running.golden", []string{"delete", "on"}},
		{1, "ip-off.golden", []string{"ip", "off"}},
		{1, "exec-no-agent.golden", []string{"exec", "on", "true"}},
		{1, "ip-on.golden", []string{"ip", "on", "--resolver", "agent"}},
		{1, "shrink.golden", []string{"set", "off", "--disk-size", "0"}},
		{64, "usage.golden", []string{"run", "--nonsense", "off"}},
		{64, "usage-missing.golden", []string{"stop"}},
	} {
		began := time.Now()
		_, stderr, code := h.call(c.args...)
		if code != c.code {
			t.Errorf("%q: code %d, want %d", c.args, code, c.code)
		}
		h.golden(c.file, stderr)
		if c.args[0] == "ip" && code == 1 && time.Since(began) < time.Second {
			t.Errorf("%q failed in less than a second", c.args)
		}
	}
}

func TestBrokenVMs(t *testing.T) {
	h := newHost(t)
	h.create("a", "b")
	locked := filepath.Join(h.home, "tmp", "unlocked")
	if err := os.Mkdir(locked, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(h.file("b", nvramFile)); err != nil {
		t.Fatal(err)
	}
	if got := h.must("list", "-q"); got != "a\n" {
		t.Errorf("an incomplete directory is listed: %q", got)
	}
	if exists(locked) {
		t.Error("an unlocked entry of tmp/ is still there")
	}
	h.create("b")
	if err := os.WriteFile(h.file("b", configFile), []byte(`{"version":1`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := h.call("list")
	if code != 1 {
		t.Errorf("list with an unreadable VM: code %d", code)
	}
	h.golden("list-unreadable.golden", stderr)
	h.start("a") // which does not read others
}

func TestListIsJSON(t *testing.T) {
	h := newHost(t)
	var rows []map[string]any
	if err := json.Unmarshal([]byte(h.must("list", "--format", "json")), &rows); err != nil || rows == nil {
		t.Errorf("%v: %v", rows, err)
	}
}

// TestClone: all files are copied, the identity stays, the MAC does not, and nothing is left in tmp/.
func TestClone(t *testing.T) {
	h := newHost(t)
	h.create("a")
	h.must("clone", "a", "b")
	a, err1 := (&home{dir: h.home}).vm("a").config()
	b, err2 := (&home{dir: h.home}).vm("b").config()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if a.ECID != b.ECID || a.MACAddress == b.MACAddress {
		t.Errorf("clone: %v, %v", a, b)
	}
	disk, _ := os.ReadFile(h.file("a", nvramFile))
	if clone, _ := os.ReadFile(h.file("b", nvramFile)); !bytes.Equal(disk, clone) {
		t.Error("the auxiliary storage is another one")
	}
	h.knob("disk-full", "")
	_, stderr, code := h.call("clone", "a", "c")
	if code != 1 || exists(h.file("c", "")) {
		t.Errorf("clone to a full disk: code %d", code)
	}
	h.golden("disk-full.golden", stderr)
	h.must("rename", "b", "d")
	h.must("set", "d", "--random-serial", "--random-mac")
	if d, err := (&home{dir: h.home}).vm("d").config(); err != nil || d.ECID == b.ECID || d.MACAddress == b.MACAddress {
		t.Errorf("set: %v, %v", d, err)
	}
	h.must("delete", "d")
	if got := h.must("list", "-q"); got != "a\n" {
		t.Errorf("left: %q", got)
	}
	if left, _ := os.ReadDir(filepath.Join(h.home, "tmp")); len(left) != 0 {
		t.Errorf("tmp/ has %v", left)
	}
}

// TestClonesAreStaged: a clone that was killed leaves no half VM, and the next command removes what it has left.
func TestClonesAreStaged(t *testing.T) {
	h := newHost(t)
	h.create("a")
	h.knob("b/clone-delay", fakeguest.Never)
	p, err := cliproc.StartDetached(h.command("clone", "a", "b"), os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	staged := func() int {
		entries, _ := os.ReadDir(filepath.Join(h.home, "tmp"))
		return len(entries)
	}
	h.eventually("the clone has begun", func() bool { return staged() == 1 })
	h.must("list")
	if staged() != 1 {
		t.Error("a locked entry of tmp/ was removed")
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	h.awaitEnd(p)
	h.eventually("its entry is removed", func() bool { // its lock ends with its last thread
		if got := h.must("list", "-q"); got != "a\n" {
			t.Fatalf("VMs %q", got)
		}
		return staged() == 0
	})
}
