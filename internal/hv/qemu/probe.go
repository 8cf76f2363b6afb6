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
	cpu   string                      // model that goes with it
	could func(guestArch string) bool // quick check before a boot is tried; nil = always
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
	machine, err := newestMachine(out, d.platform)
	if err != nil {
		return hv.Host{}, err
	}
	h := hv.Host{
		Driver: "qemu", Version: version, Machine: machine, Arch: d.platform.arch, Capabilities: d.baseCapabilities(),
	}
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
		case a.could(d.platform.arch) && d.bootsUnder(ctx, machine, a.name):
			return a.name, a.cpu, nil
		}
	}
	return "", "", fmt.Errorf("unknown accelerator %q", d.opts.Accelerator)
}

// bootsUnder runs a small guest under an accelerator and reports whether it ran to its end.
func (d *Driver) bootsUnder(ctx context.Context, machine, accel string) bool {
	guest := d.platform.probe
	f, err := os.CreateTemp("", "boot-*.raw")
	if err != nil {
		return false
	}
	defer f.Close()
	defer os.Remove(f.Name())
	if _, err := f.Write(guest.content); err != nil {
		return false
	}
	if err := f.Truncate(guest.bytes); err != nil {
		return false
	}
	ro, err := os.Open(f.Name())
	if err != nil {
		return false
	}
	defer ro.Close()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", machine, "-accel", accel,
		"-cpu", cpuModel(accel), "-add-fd", "fd=3,set=1",
	}
	cmd := exec.CommandContext(ctx, d.opts.Binary, append(args, guest.args...)...)
	cmd.ExtraFiles = []*os.File{ro}
	cmd.Env, cmd.Dir = toolEnv(), "/"
	cmd.SysProcAttr = d.processAttributes()
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode() == guest.exitCode
	}
	return err == nil && guest.exitCode == 0
}

// cpuModel returns the model of processor that goes with an accelerator.
func cpuModel(accel string) string {
	for _, a := range accelerators {
		if a.name == accel {
			return a.cpu
		}
	}
	return "max"
}

func mayHaveKVM(guestArch string) bool {
	if runtime.GOOS != "linux" || runtime.GOARCH != guestArch {
		return false
	}
	if guestArch != "amd64" {
		_, err := os.Stat("/dev/kvm")
		return err == nil
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

func mayHaveHVF(guestArch string) bool {
	return runtime.GOOS == "darwin" && runtime.GOARCH == guestArch
}

var versionPattern = regexp.MustCompile(`QEMU emulator version (\d+\.\d+\.\d+)`)

func parseVersion(out []byte) (string, error) {
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return "", errors.New("unexpected version output of the QEMU program")
	}
	return string(m[1]), nil
}

// newestMachine returns the newest versioned machine type of a platform: a saved state needs the very
// machine type that it was made on, so "q35" alone is not sufficient.
func newestMachine(out []byte, p platform) (string, error) {
	best, bestMajor, bestMinor := "", -1, -1
	for _, m := range p.machinePattern.FindAllSubmatch(out, -1) {
		major, err1 := strconv.Atoi(string(m[2]))
		minor, err2 := strconv.Atoi(string(m[3]))
		if errors.Join(err1, err2) != nil || bytes.Contains(m[0], []byte("deprecated")) {
			continue
		}
		if major > bestMajor || (major == bestMajor && minor > bestMinor) {
			best, bestMajor, bestMinor = fmt.Sprintf("%s-%d.%d", m[1], major, minor), major, minor
		}
	}
	if best == "" {
		return "", fmt.Errorf("%s supports no versioned machine type that matches %s", p.binary, p.machinePattern)
	}
	return best, nil
}
