//go:build linux

package qemu_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/guesttest"
	"github.com/buildyard/buildyard/internal/hv/qemu"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// The cgroups on a kernel with only cgroup v2: that of a guest, which gets this package's tests as
// its second disk and runs TestCgroups.
func TestCgroupsInGuest(t *testing.T) {
	fulltest.Only(t) // TestCgroups runs on the host, and this compiles the tests again
	t.Parallel()
	guesttest.Disk(t)
	program := filepath.Join(t.TempDir(), "program")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-trimpath", "-vet=off", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the tests: %v\n%s", err, out)
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(program, (info.Size()+511)&^511); err != nil { // a disk has whole sectors
		t.Fatal(err)
	}
	image, d := guest(t), open(t, t.TempDir())
	spec := newSpec(image, "qcow2")
	spec.MemoryMB = 512
	spec.Disks = append(spec.Disks, hv.Disk{Path: program, Format: "raw"})
	defer remove(t, d, spec.ID)
	if _, err := d.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	script := `set -e
mkdir -p /sys/fs/cgroup
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
cat /sys/fs/cgroup/cgroup.controllers
cat /dev/vdb >/root/tests
chmod +x /root/tests
BUILDYARD_QEMU_CGROUP_HERE=1 exec /root/tests -test.v -test.run '^TestCgroups$'`
	r, err := d.Exec(t.Context(), spec.ID, hv.ScriptCommand([]byte(script), 3*time.Minute))
	if err != nil || r.Code != 0 || !strings.Contains(string(r.Stdout), "--- PASS: TestCgroups/memory") {
		t.Errorf("in the guest: %v, exit code %d\n%s%s", err, r.Code, r.Stdout, r.Stderr)
	}
}

// QEMU starts in its VM's cgroup, stays there when the agent ends, and the cgroup is removed with
// it. Where the host's cgroups cannot have limits, they have none here.
func TestQEMUInCgroup(t *testing.T) {
	t.Parallel()
	spec := warmSpec(t)
	parent := filepath.Join(cgroup2(t), fmt.Sprintf("buildyard-test-%d", os.Getpid()))
	dir := t.TempDir()
	opt := qemu.Options{Dir: dir, CgroupParent: parent}
	opt.WeakCgroups()
	d := openWith(t, opt)
	vm, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	where, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", vm.PID))
	if err != nil || !strings.Contains(string(where), "/vm-"+spec.ID+"\n") {
		t.Errorf("QEMU is in %s, %v", where, err)
	}
	_ = d.Close()
	d = openWith(t, opt)
	groups, err := filepath.Glob(filepath.Join(parent, "*", "vm-"+spec.ID))
	if err != nil || len(groups) != 1 {
		t.Fatalf("%v, %v", groups, err)
	}
	if err := d.Stop(t.Context(), spec.ID, hv.StopForce); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(groups[0]); !os.IsNotExist(err) {
		t.Errorf("the group is left after a stop: %v", err)
	}
	remove(t, d, spec.ID)
	if _, err := d.Start(t.Context(), spec); err != nil { // and is made again
		t.Error(err)
	}
	remove(t, d, spec.ID)
	for _, dir := range []string{filepath.Dir(groups[0]), parent} {
		if err := os.Remove(dir); err != nil {
			t.Errorf("left in %s: %v", dir, err)
		}
	}
}

// cgroup2 returns a tree of cgroup v2.
func cgroup2(t *testing.T) string {
	t.Helper()
	for _, tree := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var s unix.Statfs_t
		if err := unix.Statfs(tree, &s); err == nil && s.Type == unix.CGROUP2_SUPER_MAGIC &&
			unix.Access(tree, unix.W_OK) == nil {
			return tree
		}
	}
	t.Skip("there is no tree of cgroup v2 that may be written to")
	return ""
}
