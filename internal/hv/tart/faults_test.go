//go:build linux

package tart

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/internal/hv/clitest"
	"github.com/buildyard/buildyard/internal/hv/forward"
)

// eventually waits for a condition that another process brings about.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited a minute in vain: " + what)
		}
	}
}

// killPID ends a process as kill -9 does.
func killPID(t *testing.T, pid int) {
	t.Helper()
	p, err := cliproc.Find(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestFailedStarts: what goes wrong in tart run is in the error, the VM is stopped with that failure, and
// its removal leaves nothing.
func TestFailedStarts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, knob, value string
		says              []string
		is                error
		boot              time.Duration
	}{
		{name: "keychain", knob: "vz-error", value: "1", says: []string{"VZErrorDomain Code=1", "login keychain"}},
		{name: "auxiliary storage", knob: "vz-error", value: "2", says: []string{"Failed to lock auxiliary storage"}},
		{name: "no agent", knob: "agent-delay", value: "never", is: hv.ErrBootTimeout, boot: 3 * time.Second},
		{name: "crash", knob: "crash", value: "0", says: []string{"due to error"}},
		{name: "network", knob: "network-error", value: "0", says: []string{"has been disconnected"}},
		{
			name: "limit", knob: "limit", value: "0",
			says: []string{"refuses another macOS guest although none runs here", "restart it"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMac(t)
			m.setKnob(c.knob, c.value)
			if c.knob != "agent-delay" {
				m.setKnob("agent-delay", "5") // the failure comes first
			}
			d := m.open(m.options())
			s := m.spec()
			if c.boot > 0 {
				s.BootTimeout = c.boot
			}
			_, err := d.Start(t.Context(), s)
			if err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("Start: %v", err)
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("Start: %v, want %q", err, text)
				}
			}
			vm, err := d.Get(t.Context(), s.ID)
			if err != nil || vm.Status != hv.Stopped || vm.Failure == "" {
				t.Errorf("after the failed start: %+v, %v", vm, err)
			}
			if log, err := d.FailureLog(s.ID); err != nil || !strings.Contains(string(log), vm.Failure) {
				t.Errorf("log %q, %v: want %q", log, err, vm.Failure)
			}
			if err := d.Delete(t.Context(), s.ID); err != nil {
				t.Error(err)
			}
			m.expectEmpty(d)
		})
	}
}

// expectEmpty checks that no VM and no directory of one is left.
func (m *testMac) expectEmpty(d *Driver) {
	m.t.Helper()
	for _, name := range []string{vmsDir, stagingDir, removedDir} {
		entries, err := os.ReadDir(filepath.Join(d.opts.Home, name))
		if err != nil || len(entries) > 0 {
			m.t.Errorf("%s has %v, %v", name, entries, err)
		}
	}
}

// TestMissingDisk: a start that cannot make its disks leaves nothing.
func TestMissingDisk(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	d := m.open(m.options())
	s := m.spec()
	s.Disks[1].Path = filepath.Join(m.root, "missing")
	if _, err := d.Start(t.Context(), s); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Start: %v", err)
	}
	m.expectEmpty(d)
}

// TestUnfinishedDirectories: directories that were being made or removed are gone after the next start of the agent.
func TestUnfinishedDirectories(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	o := m.options()
	for _, name := range []string{stagingDir, removedDir} {
		if err := os.MkdirAll(filepath.Join(o.Home, name, "vm-x-1", "deep"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.expectEmpty(m.open(o))
}

// TestAgentKilledInStart: an agent completes the start that a killed one has begun, whether that had recorded the
// process of tart or not: the guest is ready and its ports are forwarded.
func TestAgentKilledInStart(t *testing.T) {
	for name, isRecorded := range map[string]bool{"recorded": true, "not recorded": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMac(t)
			m.setKnob("agent-delay", "3")
			m.setKnob("ssh", "22")
			o := m.options()
			s := m.spec()
			s.NeedNetwork = true
			s.Ports = []hv.PortRule{{Name: "ssh", GuestPort: 22, HostIP: "127.0.0.1"}}
			m.startAndKillAgent(o, s)

			d := m.open(o)
			if !isRecorded {
				err := d.machine(s.ID).updateRecord(func(r *record) { r.Process = cliproc.Process{} })
				if err != nil {
					t.Fatal(err)
				}
			}
			vm, err := d.Start(t.Context(), s)
			if err != nil || vm.Status != hv.Running || vm.PID == 0 || len(vm.Ports) != 1 ||
				!hasSSHBanner(vm.Ports[0].HostPort) {
				t.Fatalf("%+v, %v", vm, err)
			}
			r, err := d.Exec(t.Context(), s.ID, hv.Command{Path: "/bin/sh", Args: []string{"-c", "exit 7"}})
			if err != nil || r.Code != 7 {
				t.Errorf("%+v, %v", r, err)
			}
			if err := d.Delete(t.Context(), s.ID); err != nil {
				t.Fatal(err)
			}
			m.expectEmpty(d)
		})
	}
}

// startAndKillAgent starts a VM by an agent that is killed once tart runs and before the guest is ready.
func (m *testMac) startAndKillAgent(o Options, s hv.Spec) {
	m.t.Helper()
	text, err := json.Marshal(agentStart{o.Home, o.Program, o.LeasesFile, o.Forwarder, s})
	if err != nil {
		m.t.Fatal(err)
	}
	agent := exec.Command(os.Args[0])
	agent.Stderr = testWriter{m.t}
	agent.Env = append(os.Environ(), agentEnv+"="+string(text))
	if err := agent.Start(); err != nil {
		m.t.Fatal(err)
	}
	dir := filepath.Join(o.Home, vmsDir, s.ID)
	eventually(m.t, "tart runs the VM", func() bool {
		pid, err := cliproc.LockOwner(filepath.Join(dir, configFile))
		r, readErr := (&machine{dir: dir}).readRecord()
		return err == nil && pid != 0 && readErr == nil && r.Process.PID == pid && !r.Ready
	})
	if err := agent.Process.Kill(); err != nil {
		m.t.Fatal(err)
	}
	_ = agent.Wait()
}

// TestShutdownIsRepeated: a request that does not reach the guest is made again.
func TestShutdownIsRepeated(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	d := m.open(m.options())
	s := m.spec()
	if _, err := d.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(d.machine(s.ID).dir, "control.sock")
	if err := os.Rename(socket, socket+"-away"); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- d.Stop(t.Context(), s.ID, hv.StopOrderly) }()
	time.Sleep(300 * time.Millisecond) // for the first request, which fails
	if err := os.Rename(socket+"-away", socket); err != nil {
		t.Fatal(err)
	}
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if why := d.machine(s.ID).runLog().failure(); why != shutDownText {
		t.Errorf("the VM was not shut down in order: %s", why)
	}
}

// TestForwarderIsRestarted: a killed forwarder is started again with the same ports.
func TestForwarderIsRestarted(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.setKnob("ssh", "22")
	d := m.open(m.options())
	s := m.spec()
	s.NeedNetwork = true
	s.Ports = []hv.PortRule{{Name: "ssh", GuestPort: 22, HostIP: "127.0.0.1"}}
	vm, err := d.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	port := vm.Ports[0].HostPort
	if !hasSSHBanner(port) {
		t.Fatalf("no SSH server at port %d", port)
	}
	ports, err := forward.ReadPorts(d.machine(s.ID).dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := ports.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the forwarder works again", func() bool {
		vms, err := d.List(t.Context())
		return err == nil && len(vms) == 1 && len(vms[0].Ports) == 1 && vms[0].Ports[0].HostPort == port &&
			hasSSHBanner(port)
	})
	if err := errors.Join(d.Delete(t.Context(), s.ID), d.Close()); err != nil {
		t.Error(err)
	}
	if hasSSHBanner(port) {
		t.Error("the forwarder outlives its VM")
	}
	m.expectEmpty(d)
}

func hasSSHBanner(port int) bool {
	c, err := net.DialTimeout("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), 5*time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && strings.HasPrefix(line, "SSH-2.0-")
}

// TestSlotIsHeld: a start that macOS refuses because a guest that has ended is still counted succeeds later.
func TestSlotIsHeld(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.setKnob("limit", "1")
	m.setKnob("slot-held", "3")
	d := m.open(m.options())
	first, second := m.spec(), m.spec()
	for _, s := range []hv.Spec{first, second} {
		if _, err := d.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if err := d.Stop(t.Context(), s.ID, hv.StopOrderly); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSameMAC: of two VMs with one requested address the second is refused.
func TestSameMAC(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	d := m.open(m.options())
	first, second := m.spec(), m.spec()
	first.MAC, second.MAC = "52:54:00:aa:bb:cc", "52:54:00:AA:BB:CC"
	if _, err := d.Start(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	want := "MAC address 52:54:00:aa:bb:cc is in use by VM " + first.ID
	if _, err := d.Start(t.Context(), second); !errors.Is(err, hv.ErrRefused) || !strings.Contains(err.Error(), want) {
		t.Errorf("Start: %v, want %q", err, want)
	}
}

// TestMACOfOtherProgram: tart assigns a VM another address if a VM of another program has it. A requested address is
// refused immediately; otherwise the guest has the other address.
func TestMACOfOtherProgram(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	d := m.open(m.options())
	requested, other := m.spec(), m.spec()
	requested.MAC, requested.NeedNetwork, other.NeedNetwork = "52:54:00:aa:bb:cc", true, true
	for name, mac := range map[string]string{"first": requested.MAC, "second": hv.DefaultMAC(other.UUID)} {
		m.runOther(d.opts.Home, name, mac)
	}
	m.setKnob("limit", "3")
	_, err := d.Start(t.Context(), requested)
	if !errors.Is(err, hv.ErrRefused) || !strings.Contains(err.Error(), "in use by VM of another program") {
		t.Errorf("Start with a requested address: %v", err)
	}
	vm, err := d.Start(t.Context(), other)
	if err != nil || vm.MAC == hv.DefaultMAC(other.UUID) || vm.IP == "" {
		t.Errorf("Start: %+v, %v", vm, err)
	}
}

// runOther runs a VM of another program with a MAC address in a TART_HOME.
func (m *testMac) runOther(home, name, mac string) {
	m.t.Helper()
	tart := func(args ...string) *exec.Cmd {
		cmd := exec.Command(m.program, args...)
		cmd.Env = append(os.Environ(), "TART_HOME="+home)
		return cmd
	}
	create := tart("create", name, "--from-ipsw", filepath.Join(m.root, "restore.ipsw"), "--disk-size", "1")
	if out, err := create.CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
	config := filepath.Join(home, vmsDir, name, configFile)
	text, err := os.ReadFile(config)
	if err != nil {
		m.t.Fatal(err)
	}
	text = regexp.MustCompile(`"macAddress": *"[^"]*"`).ReplaceAll(text, []byte(`"macAddress":"`+mac+`"`))
	if err := os.WriteFile(config, text, 0o600); err != nil {
		m.t.Fatal(err)
	}
	run := tart("run", "--no-graphics", name)
	if err := run.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		clitest.KillAll(m.t, m.root)
		_ = run.Wait()
	})
	eventually(m.t, name+" runs", func() bool {
		pid, err := cliproc.LockOwner(config)
		return err == nil && pid != 0
	})
}

// TestGuestIgnoresShutdown: a guest that ignores the shutdown is ended by force, but not by a save.
func TestGuestIgnoresShutdown(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits a minute for the guest")
	}
	m := newMac(t)
	m.setKnob("ignore-shutdown", "1")
	d := m.open(m.options())
	s := m.spec()
	if _, err := d.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	mm := d.machine(s.ID)
	if err := mm.shutDown(t.Context(), time.Second); err == nil || !strings.Contains(err.Error(), "did not shut down") {
		t.Errorf("shutDown: %v", err)
	}
	if vm, err := d.Get(t.Context(), s.ID); err != nil || vm.Status != hv.Running {
		t.Errorf("%+v, %v", vm, err)
	}
	if err := d.Stop(t.Context(), s.ID, hv.StopForce); err != nil {
		t.Fatal(err)
	}
}

// TestUnreadableNeighbor: VMs that cannot be read hide none of the others: neither one of another program, nor one
// of this driver whose record is damaged, which can be removed.
func TestUnreadableNeighbor(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	o := m.options()
	d := m.open(o)
	for name, files := range map[string][]string{
		"other": {configFile, rootFile, auxFile}, "damaged": {configFile, rootFile, auxFile, recordFile},
	} {
		dir := filepath.Join(o.Home, vmsDir, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := m.spec()
	if _, err := d.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	vms, err := d.List(t.Context())
	if err != nil || len(vms) != 2 || vms[0].ID != "damaged" || vms[0].Failure == "" || vms[1].ID != s.ID ||
		vms[1].Status != hv.Running {
		t.Errorf("%+v, %v", vms, err)
	}
	if err := d.Delete(t.Context(), "damaged"); err != nil {
		t.Error(err)
	}
	if vms, err := d.List(t.Context()); err != nil || len(vms) != 1 {
		t.Errorf("%+v, %v", vms, err)
	}
}

// TestDamagedRecord: a VM whose record cannot be read disturbs no others and can be removed.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	o := m.options()
	d := m.open(o)
	bad, good := m.spec(), m.spec()
	if _, err := d.Start(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.machine(bad.ID).dir, recordFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	d = m.open(o)
	if _, err := d.Start(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	vms, err := d.List(t.Context())
	if err != nil || len(vms) != 2 || vms[0].Status != hv.Running || vms[1].Status != hv.Running {
		t.Errorf("%+v, %v", vms, err)
	}
	if _, err := d.Start(t.Context(), bad); !errors.Is(err, errDamagedRecord) {
		t.Errorf("Start of the damaged VM: %v", err)
	}
	for _, id := range []string{bad.ID, good.ID} {
		if err := d.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	m.expectEmpty(d)
}

// TestKilledVM: a VM whose tart run was killed is stopped, and says so.
func TestKilledVM(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	d := m.open(m.options())
	s := m.spec()
	vm, err := d.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	killPID(t, vm.PID)
	eventually(t, "the VM is stopped", func() bool {
		vm, err := d.Get(t.Context(), s.ID)
		return err == nil && vm.Status == hv.Stopped && vm.Failure != ""
	})
	if _, err := d.Start(t.Context(), s); err != nil {
		t.Errorf("start it again: %v", err)
	}
}

// TestGuestWithoutAgent: commands run by SSH in a guest whose agent never answers, also for a new agent of the
// node.
func TestGuestWithoutAgent(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.setKnob("ssh", "22")
	m.setKnob("agent-delay", "never")
	o := m.options()
	d := m.open(o)
	s := m.spec()
	if _, err := d.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	d = m.open(o)
	cmd := hv.ScriptCommand([]byte("echo $WORD; exit 7"), time.Minute)
	cmd.Env = []string{"WORD=a b"}
	if r, err := d.Exec(t.Context(), s.ID, cmd); err != nil || r.Code != 7 || string(r.Stdout) != "a b\n" {
		t.Errorf("%+v, %v", r, err)
	}
	if err := d.Stop(t.Context(), s.ID, hv.StopOrderly); err != nil {
		t.Error(err)
	}
	if vm, err := d.Get(t.Context(), s.ID); err != nil || vm.Failure != "" {
		t.Errorf("%+v, %v", vm, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
