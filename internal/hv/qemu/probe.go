package qemu

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

const probeTimeout = 20 * time.Second

// accelerators are tried in this order; the last one always works.
var accelerators = []struct {
	name  string
	cpu   string      // model that goes with it
	could func() bool // quick check before a boot is tried; nil = always
}{
	{name: "kvm", cpu: "host", could: mayHaveKVM},
	{name: "hvf", cpu: "host", could: mayHaveHVF},
	{name: "tcg", cpu: "max"},
}

// probe determines the version and the abilities of this host's QEMU.
func (d *Driver) probe(ctx context.Context) (hv.Host, error) {
	out, err := runTool(ctx, probeTimeout, d.opts.Binary, "-version")
	if err != nil {
		return hv.Host{}, err
	}
	version, err := parseVersion(out)
	if err != nil {
		return hv.Host{}, err
	}
	if out, err = runTool(ctx, probeTimeout, d.opts.Binary, "-machine", "help"); err != nil {
		return hv.Host{}, err
	}
	machine, err := newestMachine(out)
	if err != nil {
		return hv.Host{}, err
	}
	h := hv.Host{Driver: "qemu", Version: version, Machine: machine, Arch: "amd64", Capabilities: d.baseCapabilities()}
	h.Accelerator, h.CPU, err = d.probeAccelerator(ctx, machine)
	h.HostCPU = hostCPU()
	return h, err
}

// probeAccelerator returns the first one under which a boot makes progress. A device that can be opened
// proves nothing: on some hosts /dev/kvm exists and real kernels hang under it, hence the check of
// the CPU, too.
func (d *Driver) probeAccelerator(ctx context.Context, machine string) (name, cpu string, err error) {
	for _, a := range accelerators {
		switch {
		case d.opts.Accelerator != "" && d.opts.Accelerator != a.name:
		case d.opts.Accelerator == a.name || a.could == nil:
			return a.name, a.cpu, nil
		case a.could() && d.bootsUnder(ctx, machine, a.name):
			return a.name, a.cpu, nil
		}
	}
	return "", "", fmt.Errorf("unknown accelerator %q", d.opts.Accelerator)
}

// bootSector writes 0x10 to the debug-exit port, by which QEMU ends with code
// 2*0x10+1: mov dx,0xf4; mov al,0x10; out dx,al; hlt; jmp back.
var bootSector = []byte{0xba, 0xf4, 0x00, 0xb0, 0x10, 0xee, 0xf4, 0xeb, 0xfd}

const bootedExitCode = 0x21

// bootsUnder runs a boot sector under an accelerator and reports whether it ran to its end.
func (d *Driver) bootsUnder(ctx context.Context, machine, accel string) bool {
	sector := make([]byte, 512)
	copy(sector, bootSector)
	sector[510], sector[511] = 0x55, 0xaa
	f, err := os.CreateTemp("", "boot-*.raw")
	if err != nil {
		return false
	}
	defer f.Close()
	defer os.Remove(f.Name())
	if _, err := f.Write(sector); err != nil {
		return false
	}
	if err := f.Truncate(1 << 20); err != nil { // the BIOS passes over smaller disks
		return false
	}
	ro, err := os.Open(f.Name())
	if err != nil {
		return false
	}
	defer ro.Close()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.opts.Binary, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", machine, "-accel", accel, "-m", "32", "-device", "isa-debug-exit,iobase=0xf4,iosize=0x04",
		"-add-fd", "fd=3,set=1", "-blockdev",
		"driver=raw,node-name=d,read-only=on,file.driver=file,file.filename=/dev/fdset/1",
		"-device", "virtio-blk-pci,drive=d")
	cmd.ExtraFiles = []*os.File{ro}
	cmd.Env, cmd.Dir = toolEnv(), "/"
	cmd.SysProcAttr = d.processAttributes()
	cmd.WaitDelay = time.Second
	var exit *exec.ExitError
	return errors.As(cmd.Run(), &exit) && exit.ExitCode() == bootedExitCode
}

func mayHaveKVM() bool {
	if runtime.GOOS != "linux" {
		return false
	}
	b, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && hasVirtualization(b)
}

// hasVirtualization reports whether the flags in /proc/cpuinfo have vmx or svm.
func hasVirtualization(cpuinfo []byte) bool {
	s := bufio.NewScanner(bytes.NewReader(cpuinfo))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		key, value, _ := bytes.Cut(s.Bytes(), []byte{':'})
		if string(bytes.TrimSpace(key)) != "flags" {
			continue
		}
		for f := range bytes.FieldsSeq(value) {
			if s := string(f); s == "vmx" || s == "svm" {
				return true
			}
		}
	}
	return false
}

// hostCPU identifies the host's CPU with its features, which determine the models "host" and "max".
func hostCPU() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOOS + " " + runtime.GOARCH
	}
	return cpuName(b)
}

// cpuName returns model and features of the first CPU in /proc/cpuinfo.
func cpuName(cpuinfo []byte) string {
	first, _, _ := bytes.Cut(cpuinfo, []byte("\n\n"))
	var model, flags string
	for line := range bytes.Lines(first) {
		key, value, _ := bytes.Cut(line, []byte{':'})
		switch string(bytes.TrimSpace(key)) {
		case "model name":
			model = string(bytes.TrimSpace(value))
		case "flags":
			flags = string(bytes.TrimSpace(value))
		}
	}
	sum := sha256.Sum256([]byte(flags))
	return fmt.Sprintf("%s %x", model, sum[:8])
}

func mayHaveHVF() bool { return runtime.GOOS == "darwin" && runtime.GOARCH == "amd64" }

var (
	versionPattern = regexp.MustCompile(`QEMU emulator version (\d+\.\d+\.\d+)`)
	machinePattern = regexp.MustCompile(`(?m)^pc-q35-(\d+)\.(\d+)\s.*$`)
)

func parseVersion(out []byte) (string, error) {
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return "", errors.New("unexpected version output of the QEMU program")
	}
	return string(m[1]), nil
}

// newestMachine returns the newest versioned q35: a saved state needs the very machine type that it
// was made on, so "q35" alone is not sufficient.
func newestMachine(out []byte) (string, error) {
	best, bestMajor, bestMinor := "", -1, -1
	for _, m := range machinePattern.FindAllSubmatch(out, -1) {
		major, err1 := strconv.Atoi(string(m[1]))
		minor, err2 := strconv.Atoi(string(m[2]))
		if errors.Join(err1, err2) != nil || bytes.Contains(m[0], []byte("deprecated")) {
			continue
		}
		if major > bestMajor || (major == bestMajor && minor > bestMinor) {
			best, bestMajor, bestMinor = fmt.Sprintf("pc-q35-%d.%d", major, minor), major, minor
		}
	}
	if best == "" {
		return "", errors.New("this QEMU does not support a versioned q35 machine type")
	}
	return best, nil
}
