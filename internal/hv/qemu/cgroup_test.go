//go:build linux

package qemu

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// cgroupHere makes TestCgroups run: it is root in a system with only cgroup v2.
const cgroupHere = "BUILDYARD_QEMU_CGROUP_HERE"

// TestCgroups tests the cgroups of the running kernel. TestCgroupsInGuest runs it on a kernel that
// supports them.
func TestCgroups(t *testing.T) {
	if os.Getenv(cgroupHere) == "" {
		t.Skip("only when " + cgroupHere + " is set; TestCgroupsInGuest does that")
	}
	opt := Options{Dir: t.TempDir()}
	g, err := openCgroups(opt, "kvm")
	if err != nil {
		t.Fatal(err)
	}
	g.memoryOverhead = 20 << 20 // nothing here is as large as QEMU
	spec := hv.Spec{ID: "memory.max", CPUs: 2, MemoryMB: 4}

	t.Run("limits", func(t *testing.T) {
		p := startIn(t, g, spec, "sleep 100")
		want := map[string]string{"memory.max": "25165824", "pids.max": "132", "cpu.weight": "200"}
		for name, value := range want {
			if got := read(t, g, spec.ID, name); got != value {
				t.Errorf("%s is %s, want %s", name, got, value)
			}
		}
		end(t, p)
		if why := g.removeFor(spec.ID); why != "" {
			t.Errorf("a process that was killed by us: %q", why)
		}
		gone(t, g, spec.ID)
	})
	t.Run("memory", func(t *testing.T) {
		p := startIn(t, g, spec, "tail /dev/zero") // keeps it all
		_ = p.Wait()
		if why := g.removeFor(spec.ID); !strings.Contains(why, "more memory") {
			t.Errorf("a process that takes all memory: %q, %v", why, p.ProcessState)
		}
		gone(t, g, spec.ID)
	})
	t.Run("threads", func(t *testing.T) {
		p := startIn(t, g, hv.Spec{ID: "p", CPUs: 2, MemoryMB: 200}, "for i in $(seq 200); do sleep 99999 & done; wait")
		_ = p.Wait()
		if n := len(strings.Fields(read(t, g, "p", "cgroup.procs"))); n == 0 || n > 132 {
			t.Errorf("%d processes where there may be 132", n)
		}
		if s := read(t, g, "p", "pids.events"); strings.HasPrefix(s, "max 0") {
			t.Errorf("the limit was not met: %s", s)
		}
		if err := setLimit(g.pathOf("p"), "cgroup.kill", "1"); err != nil {
			t.Error(err)
		}
		for end := time.Now().Add(time.Minute); strings.Contains(read(t, g, "p", "cgroup.events"),
			"populated 1"); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) { // a slow guest takes its time to end so many
				t.Fatalf("processes that do not end: %s", read(t, g, "p", "cgroup.procs"))
			}
		}
		g.removeFor("p")
		gone(t, g, "p")
	})
	t.Run("next agent", func(t *testing.T) {
		p := startIn(t, g, spec, "sleep 100")
		if err := os.Mkdir(g.pathOf("left"), 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := openCgroups(opt, "kvm")
		if err != nil {
			t.Fatal(err)
		}
		gone(t, next, "left")
		if read(t, next, spec.ID, "memory.max") != "25165824" {
			t.Error("a VM that runs has lost its limit")
		}
		other, err := openCgroups(Options{Dir: t.TempDir()}, "tcg")
		if err != nil || other.dir == g.dir {
			t.Errorf("two drivers share %s, %v", g.dir, err)
		}
		end(t, p)
		next.removeFor(spec.ID)
		gone(t, next, spec.ID)
	})
	t.Run("no start", func(t *testing.T) {
		cmd := exec.Command("/no/such/program")
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		release, err := g.createFor(cmd.SysProcAttr, spec)
		if err != nil || cmd.Start() == nil {
			t.Fatalf("%v", err)
		}
		release()
		gone(t, g, spec.ID)
	})
	t.Run("try", func(t *testing.T) {
		if err := g.testStart(t.Context(), &Driver{opts: Options{Binary: "/bin/true"}}); err != nil {
			t.Error(err)
		}
		gone(t, g, ".try")
	})
}

// startIn starts a shell in a VM's group.
func startIn(t *testing.T, g *cgroups, s hv.Spec, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "exec "+script)
	if strings.Contains(script, ";") {
		cmd.Args[2] = script
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	release, err := g.createFor(cmd.SysProcAttr, s)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func end(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
}

func read(t *testing.T, g *cgroups, id, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(g.pathOf(id), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(b))
}

func gone(t *testing.T, g *cgroups, id string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := os.Stat(g.pathOf(id))
		if os.IsNotExist(err) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the group of %s is left: %v", id, err)
		}
	}
}

// A host without such cgroups reports that, and its drivers do without.
func TestNoCgroups(t *testing.T) {
	for parent, want := range map[string]string{
		filepath.Join(t.TempDir(), "x"): "cgroup v2",
		"/no/such/tree/x":               "cgroup v2",
	} {
		if g, err := openCgroups(Options{Dir: t.TempDir(), CgroupParent: parent}, "tcg"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", parent, g, err)
		}
	}
	var none *cgroups
	attr := &syscall.SysProcAttr{}
	release, err := none.createFor(attr, hv.Spec{ID: "x"})
	if err != nil || attr.UseCgroupFD {
		t.Errorf("%+v, %v", attr, err)
	}
	release()
	if why := none.removeFor("x"); why != "" {
		t.Error(why)
	}
}

func TestLimits(t *testing.T) {
	g := &cgroups{dir: t.TempDir(), memoryOverhead: memoryOverheadTCG}
	spec := hv.Spec{ID: "x", CPUs: 200, MemoryMB: 1024}
	got := map[string]string{}
	for _, l := range g.limits(spec) {
		got[l.file] = l.value
	}
	if got["memory.max"] != "2415919104" || got["cpu.weight"] != "10000" || got["pids.max"] != "528" {
		t.Errorf("%v", got)
	}
	if _, err := g.createFor(&syscall.SysProcAttr{}, spec); err == nil || !strings.Contains(err.Error(), "memory.max") {
		t.Errorf("a directory that is no cgroup: %v", err)
	}
	if !hasOOMKill([]byte("low 0\nmax 5\noom 1\noom_kill 1\noom_group_kill 0\n")) ||
		hasOOMKill([]byte("oom 7\noom_kill 0\n")) {
		t.Error("memory.events is read wrongly")
	}
}
