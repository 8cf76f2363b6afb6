package hvtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// The machine that the checks below ask for.
const (
	askedMAC    = "52:54:00:AA:0b:0C"
	askedUUID   = "0A0B0C0D-0000-4000-8000-00000000000f"
	askedSerial = "C02,X=1 y"
	askedBytes  = 2 << 30
)

// machine makes a spec with every option.
func (s *suite) machine() hv.Spec {
	spec := s.Spec()
	pc := spec.EditPC()
	pc.Video = hv.VideoVirtIO
	if s.host.HasCapability(hv.CanSetMAC) {
		spec.MAC = askedMAC
	}
	if s.host.HasCapability(hv.CanSetIdentity) {
		pc.HardwareUUID, pc.Serial = askedUUID, askedSerial
	}
	if s.host.HasCapability(hv.CanResize) {
		spec.DiskBytes = askedBytes
	}
	if s.host.HasCapability(hv.CanVNC) {
		spec.VNC = &hv.VNC{Password: "hunter2"}
	}
	if s.host.HasCapability(hv.CanUSB) {
		pc.USB = []hv.USBDevice{{Location: "emulated:tablet"}, {Location: "emulated:storage"}}
	}
	return spec
}

// machineOptions looks at a VM with every option, and resumes from a save of it.
func (s *suite) machineOptions(t *testing.T, spec hv.Spec, vm hv.VM) {
	s.check(t, "machine options", func(t *testing.T) { s.looks(t, s.Driver, vm) })
	s.check(t, "disk size", func(t *testing.T) { s.grows(t, s.Driver, vm.ID, askedBytes) })
	s.check(t, "screen", func(t *testing.T) { s.screen(t, vm) })
	s.check(t, "console", func(t *testing.T) { s.console(t, spec.ID, spec.VNC) })
	s.check(t, "USB devices", func(t *testing.T) { s.devices(t, vm) })
	s.check(t, "saved machine", func(t *testing.T) { s.savedMachine(t, spec) })
}

// looks compares a VM and what its guest sees with what was asked for.
func (s *suite) looks(t *testing.T, d hv.Driver, vm hv.VM) {
	if want := strings.ToLower(askedMAC); vm.MAC != want && s.host.HasCapability(hv.CanSetMAC) {
		t.Errorf("the MAC address is %q, want %q", vm.MAC, want)
	}
	if !s.isLinux() || !s.host.HasCapability(hv.CanSetIdentity) {
		return
	}
	got := s.run(t, d, vm.ID,
		"cd /sys/class/dmi/id; cat product_uuid product_serial /sys/class/net/eth0/address "+
			"/sys/bus/pci/devices/0000:00:01.0/vendor")
	if want := strings.ToLower(askedUUID) + "\n" + askedSerial + "\n" + strings.ToLower(askedMAC) +
		"\n0x1af4\n"; got != want {
		t.Errorf("the guest sees\n%swant\n%s", got, want)
	}
}

// plain looks at a VM with defaults whose UUID was given in capitals, and has
// refused what no VM can have.
func (s *suite) plain(t *testing.T, vm hv.VM) {
	if want := hv.DefaultMAC(strings.ToLower(vm.UUID)); vm.MAC != want && s.host.HasCapability(hv.CanSetMAC) {
		t.Errorf("the MAC address is %q, want %q", vm.MAC, want)
	}
	if !s.host.HasCapability(hv.CanIsolate) {
		s.reaches(t, vm.ID, true)
	}
	refused := map[string]func(*hv.Spec){
		"USB kind": func(v *hv.Spec) { v.EditPC().USB = []hv.USBDevice{{Location: "emulated:toaster"}} },
		"UEFI":     func(v *hv.Spec) { v.EditPC().Firmware = hv.FirmwareUEFI },
	}
	if s.host.HasCapability(hv.CanBoot) {
		refused["USB device that is not there"] = func(v *hv.Spec) {
			v.EditPC().USB = []hv.USBDevice{{Location: "99-9"}}
		}
	}
	for name, change := range refused {
		spec := s.Spec()
		change(&spec)
		if _, err := s.Driver.Start(t.Context(), spec); !errors.Is(err, hv.ErrRefused) {
			t.Errorf("%s: %v, want ErrRefused", name, err)
		}
		if _, err := s.Driver.Get(t.Context(), spec.ID); !errors.Is(err, hv.ErrNotFound) {
			t.Errorf("%s: a refused start left a VM (%v)", name, err)
		}
	}
}

// grows lets the guest use a disk of that size, and refuses a small one.
func (s *suite) grows(t *testing.T, d hv.Driver, id string, size int64) {
	s.need(t, hv.CanResize)
	if !s.isLinux() {
		return
	}
	small := s.Spec()
	small.DiskBytes = 1 << 20
	if _, err := d.Start(t.Context(), small); !errors.Is(err, hv.ErrRefused) ||
		!strings.Contains(err.Error(), "can only grow") {
		t.Errorf("a disk smaller than its image: %v", err)
	}
	if got := s.run(t, d, id, "cat /sys/block/vda/size"); got != fmt.Sprintln(size/512) {
		t.Errorf("the disk has %s sectors, want %d", got, size/512)
	}
	for range 2 { // the second time there is nothing to grow
		r, err := d.Exec(t.Context(), id, hv.GrowFileSystemCommand(time.Minute))
		if err != nil || r.Code != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	blocks := number(strings.TrimSpace(s.run(t, d, id, "df -P -k / | tail -n 1 | { read -r _ size _; echo $size; }")))
	if int64(blocks)<<10 < size*9/10 {
		t.Errorf("the file system has %d KiB on a disk of %d bytes", blocks, size)
	}
}

// screen logs in to a VM's screen, also after an agent's restart.
func (s *suite) screen(t *testing.T, vm hv.VM) {
	s.need(t, hv.CanVNC)
	s.watches(t, vm.VNCPort, "hunter2")
	s.Driver = s.Reopen(t)
	if again := s.get(t, vm.ID).VNCPort; again != vm.VNCPort {
		t.Errorf("a new agent has the screen on port %d instead of %d", again, vm.VNCPort)
	}
	s.watches(t, vm.VNCPort, "hunter2")
}

// console looks at a VM's screen through its driver, twice at a time, and continues with it to
// the end of the connection.
func (s *suite) console(t *testing.T, id string, v *hv.VNC) {
	s.need(t, hv.CanConsole)
	password := NoPassword
	if v != nil {
		password = v.Password
	}
	d := s.Driver.(hv.ConsoleDriver)
	for range 2 {
		c, err := d.Screen(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if width, height, err := View(c, password); err != nil || width < 100 || height < 100 {
			t.Errorf("a picture of %d x %d, %v", width, height, err)
		}
	}
	if _, err := d.Screen(t.Context(), "nobody"); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("the screen of nobody: %v", err)
	}
	if v == nil {
		return
	}
	c, err := d.Screen(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := View(c, password+"x"); !errors.Is(err, errPassword) {
		t.Errorf("a wrong password: %v", err)
	}
}

// unwatched looks at the screen of a VM without a password, whose end is that of the viewer.
func (s *suite) unwatched(t *testing.T, id string) {
	s.console(t, id, nil)
	d := s.Driver.(hv.ConsoleDriver)
	c, err := d.Screen(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := View(c, NoPassword); err != nil {
		t.Error(err)
	}
	if err := s.Driver.Stop(t.Context(), id, hv.StopForce); err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(viewTime))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a viewer outlives the VM")
	}
	if _, err := d.Screen(t.Context(), id); !errors.Is(err, hv.ErrNotRunning) {
		t.Errorf("the screen of a stopped VM: %v", err)
	}
}

func (s *suite) watches(t *testing.T, port int, password string) {
	t.Helper()
	if port < 5900 {
		t.Errorf("the screen is on port %d", port)
	}
	if !s.host.HasCapability(hv.CanBoot) {
		return
	}
	eventually(t, "a login at the screen", time.Minute, func() bool {
		width, height, err := login(t.Context(), port, password)
		return err == nil && width > 0 && height > 0
	})
	if _, _, err := login(t.Context(), port, password+"x"); !errors.Is(err, errPassword) {
		t.Errorf("a wrong password: %v", err)
	}
	if _, _, err := login(t.Context(), port, ""); !errors.Is(err, errPassword) {
		t.Errorf("no password: %v", err)
	}
}

// devices looks at them from outside: what the guest sees depends on its kernel.
func (s *suite) devices(t *testing.T, vm hv.VM) {
	s.need(t, hv.CanUSB)
	many := s.Spec()
	pc := many.EditPC()
	for i := range hv.MaxUSBDevices + 1 {
		pc.USB = append(pc.USB, hv.USBDevice{Location: fmt.Sprintf("1-%d", i+1)})
	}
	if _, err := s.Driver.Start(t.Context(), many); !errors.Is(err, hv.ErrRefused) {
		t.Errorf("too many devices: %v", err)
	}
	s.sticks(t, vm.ID, "tablet storage")
}

// sticks compares the devices that the hypervisor has plugged in.
func (s *suite) sticks(t *testing.T, id, want string) {
	t.Helper()
	if s.USB == nil {
		return
	}
	eventually(t, "plugged in are "+want, time.Minute, func() bool {
		return strings.Join(s.USB(t, s.Driver, id), " ") == want
	})
}

// savedMachine resumes from a save: nothing of the machine can be changed then,
// but its ports, its screen and the size of its disk.
func (s *suite) savedMachine(t *testing.T, from hv.Spec) {
	s.need(t, hv.CanSuspend)
	s.run(t, s.Driver, from.ID, "echo machine >/root/machine")
	_, err := saver(s.Driver).Save(t.Context(),
		from.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true, Step: func(at hv.SaveStep) error {
			if at != hv.SavePaused {
				return nil
			}
			s.Driver = s.Reopen(t)
			return errHook // the old agent has ended here
		}})
	if !errors.Is(err, errHook) {
		t.Errorf("a save whose agent ended: %v", err)
	}
	s.run(t, s.Driver, from.ID, "true") // it continues
	s.sticks(t, from.ID, "tablet storage")
	saved := s.save(t, from, t.TempDir(), true)
	s.sticks(t, from.ID, "tablet storage")
	d, next := s.Other(t), s.clone(from, saved)
	for name, change := range map[string]func(*hv.Spec){
		"MAC address":      func(v *hv.Spec) { v.MAC = "52:54:00:00:00:01" },
		"hardware UUID":    func(v *hv.Spec) { v.EditPC().HardwareUUID = v.UUID },
		"serial number":    func(v *hv.Spec) { v.EditPC().Serial = "other" },
		"video controller": func(v *hv.Spec) { v.EditPC().Video = hv.VideoVGA },
		"network mode":     func(v *hv.Spec) { v.Network, v.Ports = hv.NetworkDisconnected, nil },
		"virtual CPUs":     func(v *hv.Spec) { v.CPUs++ },
		"memory":           func(v *hv.Spec) { v.MemoryMB += 64 },
	} {
		spec := next.Clone()
		change(&spec)
		_, err := d.Start(t.Context(), spec)
		if !errors.Is(err, hv.ErrRefused) || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), "leave it out") {
			t.Errorf("%s: %v, want it refused by name", name, err)
		}
	}
	if s.host.HasCapability(hv.CanVNC) {
		next.VNC = &hv.VNC{Password: "other"}
	}
	if s.host.HasCapability(hv.CanResize) {
		next.DiskBytes = askedBytes + 1<<30
	}
	vm := s.startIn(t, d, next)
	s.looks(t, d, vm)
	if got := s.run(t, d, vm.ID, "cat /root/machine"); got != "machine\n" {
		t.Errorf("the clone's disk has %q", got)
	}
	if s.host.HasCapability(hv.CanVNC) {
		s.watches(t, vm.VNCPort, "other")
	}
	if s.host.HasCapability(hv.CanResize) {
		s.grows(t, d, vm.ID, next.DiskBytes)
	}
	if err := d.Delete(t.Context(), vm.ID); err != nil {
		t.Error(err)
	}
}

// changed restarts a VM with another screen and fewer devices.
func (s *suite) changed(t *testing.T, vm hv.VM) {
	s.need(t, hv.CanRestart)
	r := s.Driver.(hv.Restarter)
	_, err := r.Restart(t.Context(), vm.ID, func(v *hv.Spec) { v.MemoryMB *= 2 })
	if !errors.Is(err, hv.ErrRefused) || !s.get(t, vm.ID).StartedAt.Equal(vm.StartedAt) {
		t.Errorf("a restart with more memory: %v, want ErrRefused and the VM as it was", err)
	}
	got, err := r.Restart(t.Context(), vm.ID, func(v *hv.Spec) {
		if v.VNC != nil {
			v.VNC.Password, v.VNC.Port = "changed", vm.VNCPort
		}
		if len(v.PCSettings().USB) > 0 {
			v.EditPC().USB = v.PC.USB[1:]
		}
	})
	if err != nil || !got.StartedAt.After(vm.StartedAt) {
		t.Fatalf("Restart: %+v, %v", got, err)
	}
	s.looks(t, s.Driver, got)
	s.keeps(t, vm.ID)
	if s.host.HasCapability(hv.CanVNC) {
		s.watches(t, got.VNCPort, "changed")
		if got.VNCPort != vm.VNCPort {
			t.Errorf("the screen is on port %d, want %d", got.VNCPort, vm.VNCPort)
		}
	}
	if s.host.HasCapability(hv.CanUSB) {
		s.sticks(t, vm.ID, "storage")
	}
}

// onHost looks at a VM that only its host can reach.
func (s *suite) onHost(t *testing.T, vm hv.VM) {
	if vm.IP == "" {
		t.Errorf("the VM has no address: %+v", vm)
	}
	s.reaches(t, vm.ID, false)
	if s.host.HasCapability(hv.CanForward) {
		s.ports(t, vm)
	}
}

// bridged boots a VM on a bridge, where there is one.
func (s *suite) bridged(t *testing.T) {
	s.need(t, hv.CanBridge)
	spec := s.Spec()
	spec.Network, spec.NeedNetwork = hv.NetworkBridge, true
	if vm := s.start(t, spec); vm.IP == "" {
		t.Errorf("the VM has no address: %+v", vm)
	}
	spec = s.Spec()
	spec.Network, spec.Ports = hv.NetworkBridge, []hv.PortRule{{Name: "ssh", GuestPort: 22}}
	if _, err := s.Driver.Start(t.Context(), spec); !errors.Is(err, hv.ErrRefused) {
		t.Errorf("port rules on a bridge: %v, want ErrRefused", err)
	}
}

// disconnected looks at a VM whose card has no cable.
func (s *suite) disconnected(t *testing.T, vm hv.VM) {
	if vm.IP != "" {
		t.Errorf("the VM has the address %s", vm.IP)
	}
	if !s.isLinux() {
		return
	}
	if got := s.run(t, s.Driver, vm.ID, "cat /sys/class/net/eth0/carrier"); got != "0\n" {
		t.Errorf("the guest's card has the carrier %q", got)
	}
	s.reaches(t, vm.ID, false)
}

// reaches checks whether a guest reaches a server of the host at the address of the host in user
// networking.
func (s *suite) reaches(t *testing.T, id string, want bool) {
	t.Helper()
	if !s.isLinux() {
		return
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	came := make(chan struct{}, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came <- struct{}{}
			_ = c.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	script := "busybox nc -w 3 10.0.2.2 " + strconv.Itoa(l.Addr().(*net.TCPAddr).Port) + " </dev/null; true"
	if _, err := s.Driver.Exec(ctx, id, hv.ScriptCommand([]byte(script), 30*time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := len(came) > 0; got != want {
		t.Errorf("the guest reaches the host: %v, want %v", got, want)
	}
}
