//go:build linux

package anka

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

// TestForeignVMs: what others have in the library is left alone.
func TestForeignVMs(t *testing.T) {
	m := newMac(t)
	m.anka("create", "other", "14.5")
	d := m.open()
	if vms, err := d.List(t.Context()); err != nil || len(vms) != 0 {
		t.Errorf("listed are %v, %v", vms, err)
	}
	if _, err := d.Get(t.Context(), "other"); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("Get: %v", err)
	}
	if err := d.Delete(t.Context(), "other"); err != nil {
		t.Error(err)
	}
	if got := m.library(); !slices.Equal(got, []string{"other"}) {
		t.Errorf("the library has %v", got)
	}
}

// TestClones: the archive is imported once, its port rules are not opened, and its image is removed with it.
func TestClones(t *testing.T) {
	m := newMac(t)
	d := m.open()
	for range 2 {
		s := m.nextSpec()
		s.Ports = []hv.PortRule{{Name: "ssh", GuestPort: 22, HostIP: "127.0.0.1"}}
		m.start(d, s)
		if got := m.anka("show", "buildyard-"+s.ID, "network"); strings.Contains(got, "5900") {
			t.Errorf("the clone has rules of the archive: %s", got)
		}
		if err := d.Delete(t.Context(), s.ID); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Count(m.anka("list"), `"buildyard-image-`); got != 1 {
		t.Errorf("the archive was imported %d times", got)
	}
	if err := os.Remove(m.archive()); err != nil {
		t.Fatal(err)
	}
	m.open()
	if got := m.anka("list"); strings.Contains(got, `"buildyard-image-`) {
		t.Errorf("the image is still there: %s", got)
	}
}

// TestFailedStarts: a start that fails leaves a stopped VM with the reason and what to do.
func TestFailedStarts(t *testing.T) {
	m := newMac(t)
	d := m.open()
	for knob, says := range map[string]string{
		"no-child": "keychain", "license": "license is not valid", "clone-hold": "", "disk-full": "No space left",
	} {
		s := m.nextSpec()
		ctx, cancel := context.WithCancel(t.Context())
		m.knob("buildyard-"+s.ID+"/"+knob, "")
		if knob == "license" {
			m.knob(knob, "invalid")
		}
		if knob == "clone-hold" {
			go func() {
				m.eventually("the clone is listed", func() bool {
					return slices.Contains(m.library(), "buildyard-"+s.ID)
				})
				cancel()
			}()
		}
		_, err := d.Start(ctx, s)
		cancel()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", knob, err)
		}
		vm, err := d.Get(t.Context(), s.ID)
		if err != nil || vm.Status != hv.Stopped || vm.Failure == "" {
			t.Errorf("%s: %+v, %v", knob, vm, err)
		}
		if knob == "license" {
			m.unsetKnob(knob)
		}
		if err := d.Delete(t.Context(), s.ID); err != nil {
			t.Errorf("%s: %v", knob, err)
		}
	}
	if got := m.library(); len(got) != 0 {
		t.Errorf("left are %v", got)
	}
}

// TestPortTaken: a host port that another program has fails the start.
func TestPortTaken(t *testing.T) {
	m := newMac(t)
	d := m.open()
	s := m.nextSpec()
	s.Ports = []hv.PortRule{{Name: "ssh", GuestPort: 22, HostIP: "127.0.0.1"}}
	first := m.start(d, s)
	other := m.nextSpec()
	other.Ports = slices.Clone(first.Ports)
	_, err := d.Start(t.Context(), other)
	if err == nil || !strings.Contains(err.Error(), "a host port of its rules is taken") {
		t.Errorf("%v", err)
	}
	third := m.nextSpec()
	third.MAC = strings.ToUpper(first.MAC)
	if _, err := d.Start(t.Context(), third); !errors.Is(err, hv.ErrRefused) || !strings.Contains(err.Error(), s.ID) {
		t.Errorf("a MAC address in use: %v", err)
	}
}

// TestLimit: the error says that other VMs run.
func TestLimit(t *testing.T) {
	m := newMac(t)
	m.knob("limit", "1")
	d := m.open()
	m.start(d, m.nextSpec())
	_, err := d.Start(t.Context(), m.nextSpec())
	if err == nil || !strings.Contains(err.Error(), "the licenses permit no more") {
		t.Errorf("%v", err)
	}
}

// TestLateAddress: with NeedNetwork a VM is ready once it has an address.
func TestLateAddress(t *testing.T) {
	m := newMac(t)
	d := m.open()
	s := m.nextSpec()
	s.NeedNetwork, s.BootTimeout = true, 3*time.Second
	m.knob("no-network", "")
	if _, err := d.Start(t.Context(), s); !errors.Is(err, hv.ErrBootTimeout) {
		t.Errorf("without an address: %v", err)
	}
	m.unsetKnob("no-network")
	s.BootTimeout = waitTime
	if vm := m.start(d, s); vm.IP == "" {
		t.Errorf("%+v", vm)
	}
}

// TestUnaskedEnds: a guest that shuts down or crashes is shown as stopped with a reason, and starts again.
func TestUnaskedEnds(t *testing.T) {
	m := newMac(t)
	d := m.open()
	s := m.nextSpec()
	m.start(d, s)
	_, _ = d.Exec(t.Context(), s.ID, hv.Command{Path: "sudo", Args: []string{"-n", "/sbin/shutdown", "-h", "now"}})
	ended := func(says string) {
		t.Helper()
		var vm hv.VM
		m.eventually("the VM has ended", func() bool {
			var err error
			vm, err = d.Get(t.Context(), s.ID)
			return err == nil && vm.Status == hv.Stopped
		})
		if !strings.Contains(vm.Failure, says) {
			t.Errorf("failure %q, want %q", vm.Failure, says)
		}
	}
	ended("the guest has shut down")
	m.start(d, s)
	m.knob("crash", "0")
	ended("process has ended")
	m.unsetKnob("crash")
	m.start(d, s)
	if err := d.Delete(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
}

// TestGuestIgnoresShutdown: a guest that ignores its shutdown is ended by force.
func TestGuestIgnoresShutdown(t *testing.T) {
	m := newMac(t)
	d := m.open()
	d.orderlyTimeout = time.Second
	s := m.nextSpec()
	m.start(d, s)
	m.knob("ignore-shutdown", "")
	if err := d.Stop(t.Context(), s.ID, hv.StopOrderly); err != nil {
		t.Error(err)
	}
	if vm, err := d.Get(t.Context(), s.ID); err != nil || vm.Status != hv.Stopped || vm.Failure != "" {
		t.Errorf("%+v, %v", vm, err)
	}
}

// TestUnknownResult: a command whose connection was lost is an error, and a canceled start ends a CLI that hangs.
func TestUnknownResult(t *testing.T) {
	m := newMac(t)
	d := m.open()
	s := m.nextSpec()
	m.start(d, s)
	m.knob("disconnect", "")
	if r, err := d.Exec(t.Context(), s.ID, hv.Command{Path: "true"}); err == nil ||
		!strings.Contains(err.Error(), "communication timeout") {
		t.Errorf("%+v, %v", r, err)
	}
	m.unsetKnob("disconnect")
	other := m.nextSpec()
	m.knob("buildyard-"+other.ID+"/hang", "start")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := d.Start(ctx, other); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a start that hangs: %v", err)
	}
}

// TestNoRunAfterEnd: nothing is run in the guest once its run has ended, as anka would start it again.
func TestNoRunAfterEnd(t *testing.T) {
	m := newMac(t)
	d := m.open()
	s := m.nextSpec()
	vm := m.start(d, s)
	g := d.machine(s.ID).runsSince(vm.PID)
	if err := d.Stop(t.Context(), s.ID, hv.StopForce); err != nil {
		t.Fatal(err)
	}
	err := g.run(t.Context(), []string{"true"}, nil, testWriter{t}, testWriter{t})
	if !errors.Is(err, hv.ErrNotRunning) {
		t.Errorf("%v", err)
	}
	m.anka("start", "buildyard-"+s.ID) // as anka run does
	if err := g.endAnother(t.Context()); err != nil {
		t.Error(err)
	}
	if vm, err := d.Get(t.Context(), s.ID); err != nil || vm.Status != hv.Stopped {
		t.Errorf("%+v, %v", vm, err)
	}
}

const cloneHold = "buildyard-interrupted/clone-hold"

// interrupt starts a VM by another process and kills that while its command line clones.
func (m *testMac) interrupt() {
	m.Helper()
	m.knob(cloneHold, "")
	agent := exec.CommandContext(m.Context(), os.Args[0])
	agent.Env = append(os.Environ(), agentEnv+"="+m.root)
	if err := agent.Start(); err != nil {
		m.Fatal(err)
	}
	m.eventually("the clone is listed", func() bool { return slices.Contains(m.library(), "buildyard-interrupted") })
	_ = agent.Process.Kill()
	_ = agent.Wait()
}

// TestKilledAgent: an agent is killed while its command line clones, which continues.
func TestKilledAgent(t *testing.T) {
	for name, finish := range map[string]func(m *testMac, d *Driver){
		"delete": func(*testMac, *Driver) {},
		"start": func(m *testMac, d *Driver) {
			m.start(d, m.spec("interrupted"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMac(t)
			m.interrupt()
			d := m.open()
			vms, err := d.List(t.Context())
			if err != nil || len(vms) != 1 || vms[0].Status != hv.Stopped {
				t.Fatalf("after the kill: %+v, %v", vms, err)
			}
			hold := filepath.Join(m.root, "anka-knobs", cloneHold)
			time.AfterFunc(500*time.Millisecond, func() { _ = os.Remove(hold) })
			finish(m, d)
			if err := d.Delete(t.Context(), "interrupted"); err != nil {
				t.Error(err)
			}
			if got := m.library(); len(got) != 0 {
				t.Errorf("left are %v", got)
			}
			if got, _ := filepath.Glob(filepath.Join(m.options().Dir, vmsDir, "*")); len(got) != 0 {
				t.Errorf("left are %v", got)
			}
		})
	}
}

// TestHalfStart: an agent that was killed after anka has started the VM is followed by one that finishes.
func TestHalfStart(t *testing.T) {
	m := newMac(t)
	d := m.open()
	s := m.nextSpec()
	first := m.start(d, s)
	if err := d.machine(s.ID).updateRecord(func(r *record) { r.IsReady, r.Ports = false, nil }); err != nil {
		t.Fatal(err)
	}
	again := m.start(m.open(), s)
	if again.PID != first.PID || !again.StartedAt.Equal(first.StartedAt) {
		t.Errorf("%+v, want %+v", again, first)
	}
	p, err := cliproc.Find(first.PID)
	if err != nil || !p.IsAlive() {
		t.Errorf("the VM has ended: %v", err)
	}
}

// TestRefusedRestart: a restart that asks for what anka cannot do leaves the VM running.
func TestRefusedRestart(t *testing.T) {
	m := newMac(t)
	d := m.open()
	s := m.nextSpec()
	before := m.start(d, s)
	_, err := d.Restart(t.Context(), s.ID, func(s *hv.Spec) { s.VNC = &hv.VNC{Password: "secret"} })
	if !errors.Is(err, hv.ErrRefused) || !strings.Contains(err.Error(), farm.RefusalAnkaScreen) {
		t.Errorf("got %v", err)
	}
	vm, err := d.Get(t.Context(), s.ID)
	if err != nil || vm.Status != hv.Running || vm.PID != before.PID {
		t.Errorf("afterwards: %+v, %v", vm, err)
	}
}
