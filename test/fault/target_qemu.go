package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// qemuCapacity is the number of real VMs at a time.
const qemuCapacity = 3

// qemuTarget kills the QEMU processes of a real node at random moments of their boots,
// scripts and lives, and now and then the agent while they live.
func qemuTarget(ctx context.Context, s *scene) (r result, err error) {
	disk, err := s.guest(ctx)
	if err != nil {
		return r, err
	}
	template, err := s.pushGuest(ctx, disk)
	if err != nil {
		return r, err
	}
	if err := s.join(ctx, "node", qemuCapacity, "qemu"); err != nil {
		return r, err
	}
	if err := s.awaitNodes(ctx, 1); err != nil {
		return r, err
	}
	s.machines = func() ([]machine, error) { return qemuMachines(s.dir, filepath.Join(s.dir, "node", "vms")) }
	s.rules, s.calmTime, s.capacity = rules{ErrorAllowed: true}, 3*time.Minute, qemuCapacity
	return s.play(ctx, loadOptions{
		Workers: qemuCapacity, Keep: 1, Longest: 40 * time.Second, Scripts: 0.5, Script: "sleep 3\necho done\n",
		Templates: []string{template}, Seed: s.seed, Pause: 200 * time.Millisecond,
	}, s.strikeQEMU)
}

// strikeQEMU kills one of the QEMU processes that live; every tenth time the agent
// is killed too, and started again.
func (s *scene) strikeQEMU(ctx context.Context) error {
	pause(ctx, s.between(200*time.Millisecond, 5*time.Second))
	live, err := qemus(s.dir)
	if err != nil || len(live) == 0 {
		return err
	}
	victim, state := s.victim(ctx, live)
	killed, err := killQEMU(victim, s.dir)
	if err != nil || !killed {
		return err
	}
	s.killed("QEMU %d of instance %s, %s", victim.pid, victim.uuid, state)
	if s.kills%10 != 5 {
		return nil
	}
	pause(ctx, s.between(0, 3*time.Second))
	if err := s.nodes[0].kill(); err != nil {
		return err
	}
	s.others++
	s.say("killed the agent too")
	pause(ctx, s.between(0, 2*time.Second))
	return s.nodes[0].start()
}

// victim draws a process; two times in three one whose instance is Started, if there
// is any, since boots last longer than scripts and lives.
func (s *scene) victim(ctx context.Context, live []qemu) (qemu, string) {
	slices.SortFunc(live, func(a, b qemu) int { return strings.Compare(a.uuid, b.uuid) })
	states := map[string]string{}
	if records, err := s.client.list(ctx, nil); err == nil {
		for _, r := range records {
			states[r.ID] = r.State
		}
	}
	started := slices.DeleteFunc(slices.Clone(live), func(q qemu) bool { return states[q.uuid] != "Started" })
	if s.rng.IntN(3) > 0 && len(started) > 0 {
		live = started
	}
	q := live[s.rng.IntN(len(live))]
	return q, states[q.uuid]
}

// killQEMU kills a process after a last look whether it is still the one that was
// meant; it says whether there was one to kill.
func killQEMU(q qemu, dir string) (bool, error) {
	if machineUUID(q.pid) != q.uuid || !holds(q.pid, dir) {
		return false, nil
	}
	err := syscall.Kill(q.pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	return err == nil, err
}
