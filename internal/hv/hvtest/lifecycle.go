package hvtest

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

func (s *suite) unknown(t *testing.T) {
	ctx, d := t.Context(), s.Driver
	if _, err := d.Get(ctx, "nobody"); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("Get: %v, want ErrNotFound", err)
	}
	if err := d.Stop(ctx, "nobody", hv.StopForce); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("Stop: %v, want ErrNotFound", err)
	}
	if _, err := d.Exec(ctx, "nobody", hv.Command{Path: "true"}); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("Exec: %v, want ErrNotFound", err)
	}
	for _, id := range []string{"nobody", "../nobody", ""} {
		if err := d.Delete(ctx, id); err != nil {
			t.Errorf("Delete %q: %v, want no error", id, err)
		}
	}
	if vms, err := d.List(ctx); err != nil || len(vms) != 0 {
		t.Errorf("List: %d VMs, %v, want none", len(vms), err)
	}
}

// refusedWithout are requests that a driver refuses unless it has an ability.
var refusedWithout = []struct {
	ability hv.Capability
	request func(*hv.Spec)
}{
	{hv.CanMacOS, func(v *hv.Spec) {
		v.Arch, v.PC, v.Apple = "arm64", nil, &hv.Apple{HardwareModel: []byte("model"), MachineID: []byte("id")}
		v.Disks = []hv.Disk{{Path: "/root.img", Format: "raw"}, {Path: "/aux.img", Format: "raw"}}
	}},
	{hv.CanAnkaImages, func(v *hv.Spec) {
		v.Arch, v.PC, v.Apple = "arm64", nil, &hv.Apple{}
		v.Disks = []hv.Disk{{Path: "/vm.anka", Format: hv.FormatAnka}}
	}},
	{hv.CanPC, func(v *hv.Spec) { v.Apple = nil }},
	{hv.CanSetMAC, func(v *hv.Spec) { v.MAC = askedMAC }},
	{hv.CanSetIdentity, func(v *hv.Spec) { v.EditPC().HardwareUUID = askedUUID }},
	{hv.CanSetIdentity, func(v *hv.Spec) { v.EditPC().Serial = askedSerial }},
	{hv.CanVGA, func(v *hv.Spec) { v.EditPC().Video = hv.VideoVGA }},
	{hv.CanNetworkHost, func(v *hv.Spec) { v.Network = hv.NetworkHost }},
	{hv.CanDisconnect, func(v *hv.Spec) { v.Network = hv.NetworkDisconnected }},
	{hv.CanUSB, func(v *hv.Spec) { v.EditPC().USB = []hv.USBDevice{{Location: "1-1"}} }},
}

func (s *suite) refusals(t *testing.T) {
	refused := map[string]func(*hv.Spec){
		"id is a path":      func(v *hv.Spec) { v.ID = "../x" },
		"no disk":           func(v *hv.Spec) { v.Disks = nil },
		"network mode":      func(v *hv.Spec) { v.Network = "carrier-pigeon" },
		"host address":      func(v *hv.Spec) { v.Ports = []hv.PortRule{{GuestPort: 1, HostIP: "x"}} },
		"negative time-out": func(v *hv.Spec) { v.BootTimeout = -time.Second },
	}
	for _, a := range refusedWithout {
		if !s.announced.HasCapability(a.ability) {
			refused["without the ability "+string(a.ability)] = a.request
		}
	}
	for name, change := range refused {
		spec := s.Spec()
		change(&spec)
		if _, err := s.Driver.Start(t.Context(), spec); !errors.Is(err, hv.ErrRefused) {
			t.Errorf("%s: %v, want ErrRefused", name, err)
		}
	}
	if vms, err := s.Driver.List(t.Context()); err != nil || len(vms) != 0 {
		t.Errorf("refused starts left %d VMs (%v)", len(vms), err)
	}
}

// life tests one VM from its start to its removal.
func (s *suite) life(t *testing.T) {
	s.check(t, "describe", s.describe)
	s.check(t, "unknown ids", s.unknown)
	s.check(t, "refusals", s.refusals)
	spec := s.machine()
	spec.NeedNetwork = true
	spec.Labels = map[string]string{"instance": "i-1", "claim": "c-ü\n2"}
	if s.host.HasCapability(hv.CanForward) {
		spec.Ports = []hv.PortRule{{Name: "ssh", GuestPort: 22, HostIP: "127.0.0.1"}}
	}
	before := time.Now().Add(-time.Minute)
	vm := s.start(t, spec)
	s.check(t, "start", func(t *testing.T) { s.started(t, spec, vm, before) })
	s.check(t, "start again", func(t *testing.T) {
		again, err := s.Driver.Start(t.Context(), spec)
		if err != nil || again.PID != vm.PID || !again.StartedAt.Equal(vm.StartedAt) {
			t.Errorf("a second Start gave %+v, %v; want the VM that runs: %+v", again, err, vm)
		}
	})
	s.commands(t, spec.ID)
	s.check(t, "port rules", func(t *testing.T) { s.ports(t, vm) })
	s.check(t, "host's loopback", func(t *testing.T) {
		s.need(t, hv.CanIsolate)
		s.reaches(t, vm.ID, false)
	})
	for _, c := range s.More {
		s.check(t, c.Name, func(t *testing.T) {
			s.need(t, c.Ability)
			c.Run(t, vm)
		})
	}
	s.machineOptions(t, spec, vm)
	s.check(t, "new agent", func(t *testing.T) { s.reopened(t, vm) })
	s.check(t, "restart with changes", func(t *testing.T) { s.changed(t, s.get(t, spec.ID)) })
	s.check(t, "orderly stop", func(t *testing.T) { s.stopped(t, spec.ID, hv.StopOrderly) })
	s.check(t, "exec when stopped", func(t *testing.T) {
		if _, err := s.Driver.Exec(t.Context(), spec.ID, hv.Command{Path: "true"}); !errors.Is(err, hv.ErrNotRunning) {
			t.Errorf("Exec: %v, want ErrNotRunning", err)
		}
	})
	s.check(t, "start after stop", func(t *testing.T) { s.restarted(t, spec) })
	s.check(t, "forced stop", func(t *testing.T) {
		s.stopped(t, spec.ID, hv.StopForce)
		if got := s.get(t, spec.ID); got.VNCPort != 0 || got.MAC == "" {
			t.Errorf("a stopped VM shows %+v", got)
		}
	})
	s.check(t, "delete", func(t *testing.T) { s.deleted(t, spec.ID) })
}

func (s *suite) started(t *testing.T, spec hv.Spec, vm hv.VM, before time.Time) {
	switch {
	case vm.ID != spec.ID, vm.Name != spec.Name, vm.UUID != spec.UUID, vm.CPUs != spec.CPUs,
		vm.MemoryMB != spec.MemoryMB:
		t.Errorf("the VM is not what was asked for: %+v", vm)
	case vm.Status != hv.Running, vm.Failure != "", !vm.StoppedAt.IsZero():
		t.Errorf("the VM does not run: %+v", vm)
	case vm.IP == "":
		t.Errorf("a network was needed, and the VM has no address: %+v", vm)
	case vm.CreatedAt.Before(before), vm.StartedAt.Before(vm.CreatedAt):
		t.Errorf("odd times: created %s, started %s", vm.CreatedAt, vm.StartedAt)
	case vm.Accelerator != s.host.Accelerator, vm.Version != s.host.Version:
		t.Errorf("runs on %s %s, the host says %s %s", vm.Accelerator, vm.Version, s.host.Accelerator, s.host.Version)
	case len(vm.Ports) != len(spec.Ports):
		t.Errorf("%d port rules, want %d", len(vm.Ports), len(spec.Ports))
	}
	for _, p := range vm.Ports {
		if p.HostPort < 10000 || p.Protocol != "tcp" {
			t.Errorf("port rule without a host port from 10000 up: %+v", p)
		}
	}
	s.same(t, vm)
}

// same checks that List and Get know a VM, labels included.
func (s *suite) same(t *testing.T, want hv.VM) {
	t.Helper()
	vms, err := s.Driver.List(t.Context())
	if err != nil || len(vms) != 1 {
		t.Fatalf("List: %d VMs, %v, want one", len(vms), err)
	}
	for _, got := range []hv.VM{vms[0], s.get(t, want.ID)} {
		if got.ID != want.ID || got.Status != want.Status || got.PID != want.PID || got.UUID != want.UUID ||
			!got.StartedAt.Equal(want.StartedAt) || !maps.Equal(got.Labels, want.Labels) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if len(got.Ports) != len(want.Ports) || (len(got.Ports) > 0 && got.Ports[0] != want.Ports[0]) {
			t.Errorf("got ports %v, want %v", got.Ports, want.Ports)
		}
	}
}

// reopened checks what an agent finds after its restart.
func (s *suite) reopened(t *testing.T, vm hv.VM) {
	s.Driver = s.Reopen(t)
	s.same(t, vm)
	r, err := s.Driver.Exec(t.Context(), vm.ID, hv.Command{Path: "echo", Args: []string{"still", "here"}})
	if err != nil || string(r.Stdout) != "still here\n" {
		t.Errorf("Exec after the restart: %q, %v", r.Stdout, err)
	}
}

func (s *suite) stopped(t *testing.T, id string, how hv.StopMode) {
	for range 2 { // stopping a stopped VM succeeds
		if err := s.Driver.Stop(t.Context(), id, how); err != nil {
			t.Fatalf("Stop %s: %v", how, err)
		}
		vm := s.get(t, id)
		if vm.Status != hv.Stopped || vm.PID != 0 || vm.Failure != "" || vm.StoppedAt.IsZero() {
			t.Fatalf("after Stop %s: %+v", how, vm)
		}
	}
}

// restarted boots a VM from the disk that its first run wrote to.
func (s *suite) restarted(t *testing.T, spec hv.Spec) {
	vm, err := s.Driver.Start(t.Context(), spec)
	if err != nil || vm.Status != hv.Running || !vm.StoppedAt.IsZero() {
		t.Fatalf("Start after Stop: %+v, %v", vm, err)
	}
	s.keeps(t, spec.ID)
}

// keeps checks a file that the first run of a VM has written.
func (s *suite) keeps(t *testing.T, id string) {
	t.Helper()
	if !s.host.HasCapability(hv.CanBoot) {
		return
	}
	r, err := s.Driver.Exec(t.Context(), id, hv.Command{Path: "cat", Args: []string{s.paths("/root/kept")}})
	if err != nil || string(r.Stdout) != "kept\n" {
		t.Errorf("a file of the first run: %q, %v", r.Stdout, err)
	}
}

func (s *suite) deleted(t *testing.T, id string) {
	for range 2 { // deleting an unknown VM succeeds
		if err := s.Driver.Delete(t.Context(), id); err != nil {
			t.Fatalf("Delete: %v", err)
		}
		if _, err := s.Driver.Get(t.Context(), id); !errors.Is(err, hv.ErrNotFound) {
			t.Fatalf("Get after Delete: %v, want ErrNotFound", err)
		}
	}
}

func (s *suite) killed(t *testing.T, vm hv.VM) {
	lost := make(chan error, 1)
	go func() {
		_, err := s.Driver.Exec(t.Context(), vm.ID, hv.ScriptCommand([]byte("sleep 600"), 10*time.Minute))
		lost <- err
	}()
	s.Kill(t, vm)
	eventually(t, "the VM shows stopped", time.Minute, func() bool { return s.get(t, vm.ID).Status == hv.Stopped })
	got := s.get(t, vm.ID)
	if got.Failure == "" || got.PID != 0 || got.StoppedAt.IsZero() {
		t.Errorf("a killed VM shows as %+v, want a Failure", got)
	}
	if err := <-lost; err == nil {
		t.Error("a command in a killed VM ended well")
	}
	if err := s.Driver.Stop(t.Context(), vm.ID, hv.StopOrderly); err != nil {
		t.Errorf("Stop of a killed VM: %v", err)
	}
	if s.get(t, vm.ID).Failure == "" {
		t.Error("stopping a killed VM forgot why it had ended")
	}
}

func (s *suite) neverReady(t *testing.T) {
	spec := s.NeverReady()
	s.deleteLater(t, spec.ID)
	_, err := s.Driver.Start(t.Context(), spec)
	if !errors.Is(err, hv.ErrBootTimeout) {
		t.Fatalf("Start: %v, want ErrBootTimeout", err)
	}
	if vm := s.get(t, spec.ID); vm.Status != hv.Stopped || vm.Failure == "" || vm.PID != 0 {
		t.Errorf("after its boot time-out: %+v", vm)
	}
}

// canceled cancels a start, as a termination does with a VM that boots.
func (s *suite) canceled(t *testing.T) {
	spec := s.NeverReady()
	spec.BootTimeout = 10 * time.Minute
	s.deleteLater(t, spec.ID)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Driver.Start(ctx, spec)
		done <- err
	}()
	eventually(t, "the VM shows running", time.Minute, func() bool {
		vm, err := s.Driver.Get(t.Context(), spec.ID)
		return err == nil && vm.Status == hv.Running
	})
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Start: %v, want context.Canceled", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a cancelled Start does not return")
	}
	if vm := s.get(t, spec.ID); vm.Status != hv.Stopped {
		t.Errorf("after a cancelled start: %+v", vm)
	}
}

// many starts several VMs concurrently, each in another network mode, and continues with them. Where
// fewer may run at a time, the rest start one after the other.
func (s *suite) many(t *testing.T) {
	s.check(t, "boot time-out", s.neverReady)
	s.check(t, "cancelled start", s.canceled)
	specs := s.networkSpecs()
	together := len(specs)
	if s.MaxVMs > 0 {
		together = min(together, s.MaxVMs)
	}
	for _, spec := range specs {
		s.deleteLater(t, spec.ID)
	}
	s.check(t, "concurrent starts", func(t *testing.T) { s.concurrent(t, specs[:together]) })
	s.check(t, "machine defaults", func(t *testing.T) { s.plain(t, s.get(t, specs[0].ID)) })
	for i, spec := range specs[1:] {
		if i+1 >= together {
			s.startIn(t, s.Driver, spec)
		}
		s.network(t, spec)
		if i == 0 {
			s.check(t, "killed hypervisor", func(t *testing.T) { s.killed(t, s.get(t, spec.ID)) })
		}
		if s.MaxVMs > 0 {
			s.deleted(t, spec.ID)
		}
	}
	s.check(t, "network mode bridge", s.bridged)
	s.check(t, "console without a password", func(t *testing.T) {
		s.need(t, hv.CanConsole)
		s.unwatched(t, specs[0].ID)
	})
}

// networkSpecs returns specs of at least two VMs, one for each network mode of the driver but bridge.
func (s *suite) networkSpecs() []hv.Spec {
	modes := []hv.NetworkMode{""}
	if s.host.HasCapability(hv.CanNetworkHost) {
		modes = append(modes, hv.NetworkHost)
	}
	if s.host.HasCapability(hv.CanDisconnect) {
		modes = append(modes, hv.NetworkDisconnected)
	}
	if len(modes) == 1 {
		modes = append(modes, hv.NetworkShared)
	}
	specs := make([]hv.Spec, len(modes))
	for i := range specs {
		specs[i] = s.Spec()
		specs[i].Network, specs[i].NeedNetwork = modes[i], true
		if modes[i] != hv.NetworkDisconnected {
			specs[i].Ports = []hv.PortRule{{Name: "ssh", GuestPort: 22, HostIP: "127.0.0.1"}}
		}
	}
	specs[0].UUID = strings.ToUpper(specs[0].UUID)
	return specs
}

// network looks at a running VM in its network mode.
func (s *suite) network(t *testing.T, spec hv.Spec) {
	switch spec.Network {
	case hv.NetworkHost:
		s.check(t, "network mode host", func(t *testing.T) { s.onHost(t, s.get(t, spec.ID)) })
	case hv.NetworkDisconnected:
		s.check(t, "network mode disconnected", func(t *testing.T) { s.disconnected(t, s.get(t, spec.ID)) })
	}
}

func (s *suite) concurrent(t *testing.T, specs []hv.Spec) {
	var wg sync.WaitGroup
	for _, spec := range specs {
		wg.Go(func() {
			if _, err := s.Driver.Start(t.Context(), spec); err != nil {
				t.Errorf("Start %s: %v", spec.ID, err)
			}
		})
	}
	wg.Wait()
	ports := map[int]string{}
	for _, spec := range specs {
		vm := s.get(t, spec.ID)
		if vm.Status != hv.Running || len(vm.Ports) != len(spec.Ports) {
			t.Fatalf("VM %s: %+v", spec.ID, vm)
		}
		if len(vm.Ports) == 0 {
			continue
		}
		if other := ports[vm.Ports[0].HostPort]; other != "" {
			t.Errorf("%s and %s have the same host port", other, spec.ID)
		}
		ports[vm.Ports[0].HostPort] = spec.ID
	}
}
