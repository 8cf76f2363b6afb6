//go:build linux

package qemu_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/qemu"
)

// The logs of failed starts are stored next to the VMs and outlive them: of a guest that never gets
// ready, a QEMU that ends, and a state that does not load. The error of the first contains the end
// of the guest's console.
func TestFailedStartsLeaveLogs(t *testing.T) {
	t.Parallel()
	image, parent := guest(t), t.TempDir()
	d := open(t, filepath.Join(parent, "vms"))
	// As a kernel that panics in its boot: its last output, and nothing more.
	spoiled := newSpec(talkingDisk(t), "raw")
	spoiled.BootTimeout = 10 * time.Second
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	busy := newSpec(image, "qcow2")
	busy.Ports = []hv.PortRule{
		{Name: "ssh", GuestPort: 22, HostPort: l.Addr().(*net.TCPAddr).Port, HostIP: "127.0.0.1"},
	}

	broken := newSpec(image, "qcow2")
	state := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(state, []byte("no state"), 0o600); err != nil {
		t.Fatal(err)
	}
	if broken, err = broken.WithDefaults(); err != nil {
		t.Fatal(err)
	}
	broken.State = &hv.State{Path: state, Requirements: qemu.CompatOf(d, broken)}

	for name, test := range map[string]struct {
		spec  hv.Spec
		class farm.FailureClass // that the error is marked with
		wants []string
	}{
		// The whole ring: the last 64 KiB of twice as much.
		"never ready": {spoiled, "", []string{"\n11000\n", "\n20000\n", "no-way-to-go-on", "not ready in time"}},
		"QEMU ends":   {busy, farm.FailureNetwork, []string{"host forwarding"}},
		"resume":      {broken, farm.FailureTemplate, []string{"QEMU cannot load the saved VM state"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.Start(t.Context(), test.spec)
			if err == nil {
				t.Fatal("it was started")
			}
			if got := farm.FailureOf(err).Class; got != test.class {
				t.Errorf("Start: %v has the class %q, want %q", err, got, test.class)
			}
			if name == "never ready" {
				vm, _ := d.Get(t.Context(), test.spec.ID)
				if !errors.Is(err, hv.ErrBootTimeout) || !strings.Contains(err.Error(), "no-way-to-go-on") ||
					!strings.Contains(vm.Failure, "no-way-to-go-on") {
					t.Errorf("Start: %v, Failure %q; want a boot time-out with the end of the console", err, vm.Failure)
				}
			}
			remove(t, d, test.spec.ID)
			_, path, _ := strings.Cut(err.Error(), "the complete log is in ")
			b, rerr := os.ReadFile(path)
			if rerr != nil || filepath.Dir(path) != filepath.Join(parent, "failed") {
				t.Fatalf("Start: %v; its log: %v", err, rerr)
			}
			for _, want := range test.wants {
				if !strings.Contains(string(b), want) {
					t.Errorf("the log lacks %q:\n%s", want, b[:min(len(b), 4000)])
				}
			}
		})
	}
}

// A QEMU that is killed while its resumed guest is refreshed: the error reports that QEMU ended,
// not which of its connections broke first.
func TestKilledBeforeItsRefresh(t *testing.T) {
	t.Parallel()
	spec, d := warmSpec(t), open(t, t.TempDir())
	d.SetStep(func(name string) {
		if name != "start: resumed" {
			return
		}
		vm, err := d.Get(t.Context(), spec.ID)
		if err == nil {
			err = syscall.Kill(vm.PID, syscall.SIGKILL)
		}
		if err != nil {
			t.Error(err)
		}
	})
	defer func() { remove(t, d, spec.ID) }()
	if _, err := d.Start(t.Context(), spec); err == nil ||
		!strings.Contains(err.Error(), "QEMU ended (signal: killed)") {
		t.Errorf("Start of a VM whose QEMU was killed: %v", err)
	}
}

// talkative is a boot sector that writes the sectors behind it to the serial
// console, up to the first zero byte, and then stands still.
var talkative = []byte{
	0xfc,       //        cld
	0x31, 0xc0, //        xor ax, ax
	0x8e, 0xd8, //        mov ds, ax
	0x8e, 0xd0, //        mov ss, ax
	0xbc, 0x00, 0x7c, //        mov sp, 0x7c00
	0x88, 0xd3, //              mov bl, dl        ; the disk that it was read from
	0x88, 0xda, //        next: mov dl, bl
	0xbe, 0x34, 0x7c, //        mov si, packet
	0xb4, 0x42, //              mov ah, 0x42
	0xcd, 0x13, //              int 0x13          ; read a sector
	0x72, 0x18, //              jc end
	0xbe, 0x00, 0x80, //        mov si, 0x8000
	0xb9, 0x00, 0x02, //        mov cx, 512
	0xac,       //        byte: lodsb
	0x84, 0xc0, //              test al, al
	0x74, 0x0d, //              jz end
	0xba, 0xf8, 0x03, //        mov dx, 0x3f8
	0xee,       //              out dx, al
	0xe2, 0xf5, //              loop byte
	0x66, 0xff, 0x06, 0x3c, 0x7c, // inc dword [packet+8]
	0xeb, 0xdd, //              jmp next
	0xfa,       //        end:  cli
	0xf4,       //        halt: hlt
	0xeb, 0xfd, //              jmp halt
	0x90, // packet: its size, one sector, to 0000:8000, from sector 1
	0x10, 0, 1, 0, 0x00, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
}

// talkingDisk makes a disk whose boot prints 20,000 lines and one more, and then stops.
func talkingDisk(t *testing.T) string {
	t.Helper()
	disk := make([]byte, 1<<20) // the BIOS passes over smaller ones
	copy(disk, talkative)
	disk[510], disk[511] = 0x55, 0xaa
	text := disk[512:512]
	for i := range 20000 {
		text = fmt.Appendf(text, "%d\r\n", i+1)
	}
	_ = append(text, "no-way-to-go-on\r\n"...)
	path := filepath.Join(t.TempDir(), "talking.raw")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
