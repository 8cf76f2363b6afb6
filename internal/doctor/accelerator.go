package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/buildyard/buildyard/internal/selfexec"
)

// Accelerator returns the check whether VMs can run with hardware acceleration: by KVM on Linux, by
// Hypervisor.framework on macOS. goos is the operating system of this machine.
func Accelerator(goos string) Check {
	return Check{"accelerator", func(ctx context.Context) Finding {
		if goos == "darwin" {
			out, err := selfexec.Run(ctx, "", "sysctl", "-n", "kern.hv_support")
			return evaluateHypervisorFramework(strings.TrimSpace(out), err)
		}
		f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
		if err == nil {
			_ = f.Close()
		}
		return evaluateKVM(err)
	}}
}

// evaluateKVM evaluates the error of opening the device of KVM.
func evaluateKVM(err error) Finding {
	switch {
	case err == nil:
		return Finding{Outcome: OK, Detail: "KVM can be used"}
	case errors.Is(err, fs.ErrNotExist):
		return Finding{
			Warning, "this machine has no /dev/kvm: VMs are emulated, and slow",
			"turn on virtualization (VT-x, AMD-V) in the firmware, or nested virtualization of this VM; modprobe kvm",
		}
	case errors.Is(err, fs.ErrPermission):
		return Finding{
			Failed, "this user may not open /dev/kvm",
			"run this and the agent as root, or add the user to the group kvm: usermod -aG kvm USER",
		}
	}
	return Finding{Warning, err.Error(), "see dmesg for messages of kvm"}
}

// evaluateHypervisorFramework evaluates the value of kern.hv_support.
func evaluateHypervisorFramework(value string, err error) Finding {
	switch {
	case err != nil:
		return Finding{Warning, "sysctl: " + err.Error(), "run: sysctl kern.hv_support"}
	case value == "1":
		return Finding{Outcome: OK, Detail: "Hypervisor.framework can be used"}
	}
	return Finding{
		Failed, "this Mac cannot run VMs: kern.hv_support is " + shorten(value),
		"use a Mac with Apple silicon; in a VM, one with nested virtualization",
	}
}

// Hypervisor returns the check whether one of the programs of hypervisors is installed.
func Hypervisor(programs ...string) Check {
	return Check{"hypervisor", func(context.Context) Finding {
		for _, program := range programs {
			if path, err := selfexec.Find(program); err == nil {
				return Finding{Outcome: OK, Detail: path}
			}
		}
		return Finding{
			Failed, "none of these is in PATH: " + strings.Join(programs, ", "),
			"install one: apt install qemu-system-x86 (qemu-system-arm on arm64), brew install qemu, or tart",
		}
	}}
}
