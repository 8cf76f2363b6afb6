package hvtest

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// saves takes one VM through failed, interrupted and successful saves, and resumes from them in
// another directory. Its commands are ones that a simulated guest supports, too: files below
// /dev/shm are memory, all others are disk.
func (s *suite) saves(t *testing.T) {
	s.need(t, hv.CanSave)
	spec := s.warm()
	if s.host.HasCapability(hv.CanForward) {
		spec.Ports = []hv.PortRule{{Name: "ssh", GuestPort: 22, HostIP: "127.0.0.1"}}
	}
	vm := s.start(t, spec)
	s.run(t, s.Driver, spec.ID, "echo written >/root/note")
	other := s.Other(t)
	if s.host.HasCapability(hv.CanSuspend) {
		s.run(t, s.Driver, spec.ID, "echo remembered >/dev/shm/note")
		s.suspendedSaves(t, other, spec, vm)
	} else if !s.announced.HasCapability(hv.CanSuspend) {
		s.check(t, "running guest", func(t *testing.T) { s.notSuspended(t, vm) })
	}
	s.check(t, "restart", func(t *testing.T) { s.restart(t, vm) })
	off := t.TempDir()
	var saved hv.SaveResult
	s.check(t, "save of a stopped guest", func(t *testing.T) { saved = s.saveStopped(t, other, spec, off) })
	s.check(t, "save of a stopped VM", func(t *testing.T) { s.saveAgain(t, spec, saved) })
}

// notSuspended refuses a save of a running guest, which continues.
func (s *suite) notSuspended(t *testing.T, vm hv.VM) {
	_, err := saver(s.Driver).Save(t.Context(), vm.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true})
	if got := s.get(t, vm.ID); !errors.Is(err, hv.ErrRefused) || got.Status != hv.Running || got.PID != vm.PID {
		t.Errorf("a save with the memory: %v and %+v, want ErrRefused and the VM as it was", err, got)
	}
}

// suspendedSaves saves a guest with its memory.
func (s *suite) suspendedSaves(t *testing.T, other hv.Driver, spec hv.Spec, vm hv.VM) {
	sum := s.work(t, spec.ID)
	var failed []hv.SaveStep
	s.check(t, "failing steps", func(t *testing.T) { failed = s.failingSaves(t, vm) })
	s.check(t, "save given up", func(t *testing.T) { s.givenUpSaves(t, vm) })
	s.check(t, "new agent in a save", func(t *testing.T) { s.interruptedSaves(t, vm) })
	dir := t.TempDir()
	var saved hv.SaveResult
	s.check(t, "save", func(t *testing.T) { saved = s.save(t, spec, dir, true) })
	if saved.State == "" {
		t.FailNow()
	}
	s.check(t, "source goes on", func(t *testing.T) { s.alive(t, s.Driver, vm.ID, sum) })
	clone := s.clone(spec, saved)
	s.check(t, "state that does not fit", func(t *testing.T) { s.misfits(t, other, clone) })
	s.check(t, "damaged state", func(t *testing.T) { s.damagedState(t, spec, saved) })
	s.check(t, "resume elsewhere", func(t *testing.T) {
		s.resume(t, other, clone, vm, sum)
		s.marked(t, other, clone.ID, failed)
	})
	s.check(t, "clones differ", func(t *testing.T) { s.clones(t, other, saved, spec) })
	s.check(t, "save of a resumed VM", func(t *testing.T) { s.secondSave(t, other, clone, sum) })
	s.check(t, "ended in a save", func(t *testing.T) { s.endedInSave(t, s.clone(spec, saved)) })
	s.check(t, "restart given up", func(t *testing.T) { s.givenUpRestarts(t, spec, saved) })
}

// clone returns a spec that resumes from a save.
func (s *suite) clone(from hv.Spec, saved hv.SaveResult) hv.Spec {
	c := s.Spec()
	c.Ports = from.Ports
	c.Disks = make([]hv.Disk, len(from.Disks))
	for i, d := range from.Disks {
		d.Deltas = append(append([]string{}, d.Deltas...), saved.Disks[i].Path)
		c.Disks[i] = d
	}
	if saved.State != "" {
		c.State = &hv.State{Path: saved.State, Requirements: saved.Requirements}
	}
	return c
}

// run runs a script in a guest and returns its output.
func (s *suite) run(t *testing.T, d hv.Driver, id, script string) string {
	t.Helper()
	r, err := d.Exec(t.Context(), id, hv.ScriptCommand([]byte(s.paths(script)), time.Minute))
	if err != nil || r.Code != 0 {
		t.Fatalf("script %q: %+v, %v", script, r, err)
	}
	return string(r.Stdout)
}

// work starts a process that counts in memory, and a file that is never synced.
func (s *suite) work(t *testing.T, id string) (sum string) {
	t.Helper()
	if !s.host.HasCapability(hv.CanBoot) {
		return ""
	}
	s.run(t, s.Driver, id, `(exec 7>/root/open; i=0; while :; do i=$((i+1)); echo $i >/dev/shm/next; mv /dev/shm/next /dev/shm/counter; echo $i >&7; sleep 0.2; done) >/dev/null 2>&1 </dev/null &
echo $! >/dev/shm/pid`)
	return s.run(t, s.Driver, id, "head -c 3000000 /dev/urandom >/root/file; sha256sum /root/file")
}

// alive checks memory, disk and process of a guest.
func (s *suite) alive(t *testing.T, d hv.Driver, id, sum string) {
	t.Helper()
	const notes, want = "cat /dev/shm/note\ncat /root/note\n", "remembered\nwritten\n"
	if !s.host.HasCapability(hv.CanBoot) {
		if got := s.run(t, d, id, notes); got != want {
			t.Errorf("the guest's notes are %q", got)
		}
		return
	}
	got := s.run(t, d, id, notes+`echo 3 >/proc/sys/vm/drop_caches; sha256sum /root/file
a=$(cat /dev/shm/counter); sleep 0.6; [ $(cat /dev/shm/counter) -gt $a ] && kill -0 $(cat /dev/shm/pid) && echo counts`)
	if want := want + sum + "counts\n"; got != want {
		t.Errorf("the guest says %q, want %q", got, want)
	}
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// saver returns the driver as a Saver.
func saver(d hv.Driver) hv.Saver { return d.(hv.Saver) }

func (s *suite) save(t *testing.T, spec hv.Spec, dir string, suspend bool) hv.SaveResult {
	t.Helper()
	saved, err := saver(s.Driver).Save(t.Context(), spec.ID, hv.SaveSpec{Dir: dir, Suspend: suspend})
	if err != nil {
		t.Fatal(err)
	}
	if len(saved.Disks) != len(spec.Disks) {
		t.Fatalf("%d deltas for %d disks", len(saved.Disks), len(spec.Disks))
	}
	for _, d := range saved.Disks {
		info, err := os.Stat(d.Path)
		if err != nil || d.Format != "qcow2" || d.ChangedBytes <= 0 {
			t.Fatalf("delta %+v, %v", d, err)
		}
		t.Logf("delta holds %d bytes, %d zeroed, file %d bytes, pause %s", d.ChangedBytes, d.ZeroedBytes, info.Size(),
			saved.PausedFor)
	}
	return saved
}

func (s *suite) resume(t *testing.T, d hv.Driver, clone hv.Spec, source hv.VM, sum string) {
	begun := time.Now()
	vm := s.startIn(t, d, clone)
	t.Logf("resumed in %s", time.Since(begun))
	if vm.UUID != clone.UUID || vm.Name != clone.Name {
		t.Errorf("the clone is %+v", vm)
	}
	s.alive(t, d, clone.ID, sum)
	if s.host.HasCapability(hv.CanForward) && vm.Ports[0].HostPort == source.Ports[0].HostPort {
		t.Error("the clone has its source's host port")
	}
	s.check(t, "port rules of a clone", func(t *testing.T) { s.ports(t, vm) })
	if !s.host.HasCapability(hv.CanBoot) {
		return
	}
	now := strings.TrimSpace(s.run(t, d, clone.ID, "date +%s"))
	if off := time.Since(time.Unix(int64(number(now)), 0)); off.Abs() > 5*time.Second {
		t.Errorf("the clone's clock is off by %s; in the guest:\n%s", off, s.run(t, d, clone.ID,
			"cat /sys/devices/system/clocksource/*/current_clocksource /proc/uptime; date +%s; dmesg | tail -n 5"))
	}
}

// marked checks the data that was written before saves failed, which is spread over several layers.
func (s *suite) marked(t *testing.T, d hv.Driver, id string, failed []hv.SaveStep) {
	for _, step := range failed {
		if got := s.run(t, d, id, "cat "+markOf(step)); got != string(step)+"\n" {
			t.Errorf("what was written before a save failed at %q: %q", step, got)
		}
	}
}

// clones draws random numbers in two VMs of one state, right after their start:
// later a kernel takes new ones from its host anyway.
func (s *suite) clones(t *testing.T, d hv.Driver, saved hv.SaveResult, from hv.Spec) {
	s.need(t, hv.CanBoot)
	blocks := map[string]bool{}
	for i := range 2 {
		clone := s.clone(from, saved)
		s.startIn(t, d, clone)
		stream := []byte(s.run(t, d, clone.ID, "dd if=/dev/urandom bs=16 count=2000 2>/dev/null"))
		for b := range slices.Chunk(stream, 16) {
			if i == 1 && blocks[string(b)] {
				t.Fatal("two clones draw the same random numbers")
			}
			blocks[string(b)] = true
		}
		if err := d.Delete(t.Context(), clone.ID); err != nil {
			t.Error(err)
		}
	}
}

// secondSave saves a clone and resumes from that.
func (s *suite) secondSave(t *testing.T, d hv.Driver, clone hv.Spec, sum string) {
	s.run(t, d, clone.ID, "echo more >/root/more")
	saved, err := saver(d).Save(t.Context(), clone.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true})
	if err != nil {
		t.Fatal(err)
	}
	next := s.clone(clone, saved)
	s.startIn(t, d, next)
	s.alive(t, d, next.ID, sum)
	if got := s.run(t, d, next.ID, "cat /root/more"); got != "more\n" {
		t.Errorf("what the clone wrote: %q", got)
	}
	for _, id := range []string{clone.ID, next.ID} {
		if err := d.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// startIn starts a VM in a driver that is emptied when the test ends.
func (s *suite) startIn(t *testing.T, d hv.Driver, spec hv.Spec) hv.VM {
	t.Helper()
	vm, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("Start %s: %v", spec.ID, err)
	}
	return vm
}

func (s *suite) restart(t *testing.T, vm hv.VM) {
	s.need(t, hv.CanRestart)
	s.run(t, s.Driver, vm.ID, "sync")
	got, err := s.Driver.(hv.Restarter).Restart(t.Context(), vm.ID, nil)
	if err != nil || got.Status != hv.Running || !got.StartedAt.After(vm.StartedAt) {
		t.Fatalf("Restart: %+v, %v", got, err)
	}
	if note := s.run(t, s.Driver, vm.ID, "cat /root/note"); note != "written\n" {
		t.Errorf("after the restart the disk has %q", note)
	}
	if !s.host.HasCapability(hv.CanSuspend) {
		return // nothing was written to its memory
	}
	r, err := s.Driver.Exec(t.Context(), vm.ID,
		hv.ScriptCommand([]byte(s.paths("cat /dev/shm/note")), time.Minute))
	if err != nil || r.Code == 0 {
		t.Errorf("after the restart: %+v, %v; want no memory", r, err)
	}
}

// saveAgain saves a VM that is already stopped, as an agent does that was killed after the shutdown.
func (s *suite) saveAgain(t *testing.T, spec hv.Spec, first hv.SaveResult) {
	saved := s.save(t, spec, t.TempDir(), false)
	for i, d := range saved.Disks {
		got, err := os.ReadFile(d.Path)
		want, werr := os.ReadFile(first.Disks[i].Path)
		if err != nil || werr != nil || !bytes.Equal(got, want) {
			t.Errorf("disk %d: the delta has %d bytes, and %d in the save that shut the guest down (%v, %v)",
				i, len(got), len(want), err, werr)
		}
	}
	if !s.host.HasCapability(hv.CanSuspend) {
		return
	}
	if _, err := saver(s.Driver).Save(t.Context(), spec.ID,
		hv.SaveSpec{Dir: t.TempDir(), Suspend: true}); !errors.Is(err, hv.ErrNotRunning) {
		t.Errorf("a save of a stopped VM with its memory: %v, want ErrNotRunning", err)
	}
}

// saveStopped saves without memory; the new VM boots from base and delta.
func (s *suite) saveStopped(t *testing.T, d hv.Driver, spec hv.Spec, dir string) hv.SaveResult {
	s.run(t, s.Driver, spec.ID, "echo last >/root/last")
	saved := s.save(t, spec, dir, false)
	if vm := s.get(t, spec.ID); vm.Status != hv.Stopped || vm.Failure != "" || saved.State != "" ||
		saved.Requirements != (hv.StateRequirements{}) {
		t.Errorf("the VM is %+v, the save %+v", vm, saved)
	}
	next := s.clone(spec, saved)
	s.startIn(t, d, next)
	if got := s.run(t, d, next.ID, "cat /root/note\ncat /root/last"); got != "written\nlast\n" {
		t.Errorf("the new VM's disk has %q", got)
	}
	if err := d.Delete(t.Context(), next.ID); err != nil {
		t.Error(err)
	}
	return saved
}
