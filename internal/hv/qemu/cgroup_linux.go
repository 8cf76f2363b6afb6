package qemu

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/hv"
)

const (
	cgroupRoot = "/sys/fs/cgroup"  // where systems with nothing but cgroup v2 have it
	cgroupName = "buildyard.slice" // ours, next to those of the system's services

	// memoryOverhead is what QEMU uses in addition to the guest's memory, in bytes. Observed: 32 MiB.
	// TCG also has a cache of translated code, which grows to 1 GiB.
	memoryOverhead    = 256 << 20
	memoryOverheadTCG = memoryOverhead + 1<<30
	// threadOverhead limits the threads in addition to those of the virtual CPUs: up to 64 serve the
	// disks. Observed: 8.
	threadOverhead = 128
	// weightPerCPU is a share of the host's CPU time; a new group has 100.
	weightPerCPU = 100
)

// cgroupControllers limit a VM to its share. A group without the needed ones would not limit anything.
var cgroupControllers = []struct {
	name   string
	needed bool
}{{"memory", true}, {"pids", true}, {"cpu", false}}

// cgroups creates a cgroup for each VM of a driver. The kernel owns the cgroups: they outlive the
// agent, as QEMU does. A nil *cgroups creates none.
type cgroups struct {
	dir            string // of this driver; each child belongs to one VM
	memoryOverhead int64  // memory in addition to the guest's, in bytes
	allowUnlimited bool   // works without limits
}

// openCgroups prepares the cgroups of a driver and removes those in which no VM runs any longer.
// The error describes why cgroups cannot be used.
func openCgroups(opt Options, accelerator string) (*cgroups, error) {
	parent := opt.CgroupParent
	if parent == "" && os.Geteuid() != 0 {
		return nil,
			errors.New("only root can create cgroups at the top of the hierarchy; set a delegated parent cgroup")
	}
	if parent == "" {
		parent = filepath.Join(cgroupRoot, cgroupName)
	}
	var fstype unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(parent), &fstype); err != nil || fstype.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil, fmt.Errorf("%s is not a cgroup v2 hierarchy; boot the host with systemd.unified_cgroup_hierarchy=1",
			filepath.Dir(parent))
	}
	sum := sha256.Sum256([]byte(opt.Dir))
	g := &cgroups{dir: filepath.Join(parent,
		fmt.Sprintf("vms-%x", sum[:6])), memoryOverhead: memoryOverhead, allowUnlimited: opt.allowWeakCgroups}
	if accelerator == "tcg" {
		g.memoryOverhead = memoryOverheadTCG
	}
	if opt.CgroupParent == "" { // a delegated parent got its controllers from the process that delegated it
		if err := g.enableControllers(cgroupRoot); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{parent, g.dir} {
		if err := makeCgroup(dir); err != nil {
			return nil, err
		}
		if err := g.enableControllers(dir); err != nil {
			return nil, err
		}
	}
	return g, g.removeUnused()
}

// enableControllers enables the controllers for the children of a cgroup.
func (g *cgroups) enableControllers(dir string) error {
	for _, c := range cgroupControllers {
		if err := setLimit(dir, "cgroup.subtree_control", "+"+c.name); err != nil && c.needed && !g.allowUnlimited {
			return fmt.Errorf("the cgroup controller %q cannot be enabled: %w", c.name, err)
		}
	}
	return nil
}

// removeUnused removes the cgroups of VMs that ended while no agent was running. The kernel refuses that
// for running ones.
func (g *cgroups) removeUnused() error {
	entries, err := os.ReadDir(g.dir)
	for _, e := range entries {
		if e.IsDir() {
			_ = os.Remove(filepath.Join(g.dir, e.Name()))
		}
	}
	return err
}

// testStart starts a program in a cgroup: not every host that has cgroups permits that.
func (g *cgroups) testStart(ctx context.Context, d *Driver) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.opts.Binary, "-version")
	cmd.Env, cmd.Dir, cmd.SysProcAttr = toolEnv(), "/", d.processAttributes()
	release, err := g.createFor(cmd.SysProcAttr, hv.Spec{ID: ".try", CPUs: 1}) // no VM has this id
	if err != nil {
		return err
	}
	defer release()
	return cmd.Run()
}

// limits returns the files of a VM's cgroup with their values.
func (g *cgroups) limits(s hv.Spec) []cgroupFile {
	memory := strconv.FormatInt(int64(s.MemoryMB)<<20+g.memoryOverhead, 10)
	return []cgroupFile{
		{"memory.max", memory, !g.allowUnlimited},
		{"memory.swap.max", memory, false}, // exists only where there is swap
		{"pids.max", strconv.Itoa(threadOverhead + 2*s.CPUs), !g.allowUnlimited},
		{"cpu.weight", strconv.Itoa(min(weightPerCPU*s.CPUs, 10000)), false},
	}
}

// cgroupFile is a file of a cgroup with its value.
type cgroupFile struct {
	file, value string
	required    bool
}

// createFor creates the cgroup of a VM and has a process start in it. release is called once the
// process was started, or could not be.
func (g *cgroups) createFor(attr *syscall.SysProcAttr, s hv.Spec) (release func(), err error) {
	if g == nil {
		return func() {}, nil
	}
	dir := g.pathOf(s.ID)
	_ = os.Remove(dir) // resets its counters
	if err := makeCgroup(dir); err != nil {
		return nil, err
	}
	for _, l := range g.limits(s) {
		if err := setLimit(dir, l.file, l.value); err != nil && l.required {
			_ = os.Remove(dir)
			return nil, fmt.Errorf("set cgroup limits of the VM: %w", err)
		}
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open cgroup of the VM: %w", err)
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(f.Fd())
	return func() {
		_ = f.Close()
		_ = os.Remove(dir) // refused while a process is in it
	}, nil
}

// removeFor removes the cgroup of a VM that has ended. It returns the reason for the end if that was
// the cgroup's limit.
func (g *cgroups) removeFor(id string) string {
	if g == nil {
		return ""
	}
	why := ""
	if b, err := os.ReadFile(filepath.Join(g.pathOf(id), "memory.events")); err == nil && hasOOMKill(b) {
		why = "QEMU took more memory than its VM may have, and the host's kernel ended it"
	}
	for range 100 { // a process may be in it for a moment after its end
		if err := os.Remove(g.pathOf(id)); !errors.Is(err, syscall.EBUSY) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return why
}

// pathOf returns the directory of a VM's cgroup. No file of a cgroup begins with "vm-".
func (g *cgroups) pathOf(id string) string { return filepath.Join(g.dir, "vm-"+id) }

// hasOOMKill reports whether memory.events counts a process that was killed.
func hasOOMKill(events []byte) bool {
	for line := range strings.Lines(string(events)) {
		if name, count, _ := strings.Cut(strings.TrimSpace(line), " "); name == "oom_kill" {
			return count != "0"
		}
	}
	return false
}

func makeCgroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a cgroup: %w", err)
	}
	return nil
}

// setLimit writes a file of a cgroup; the kernel has created it.
func setLimit(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
