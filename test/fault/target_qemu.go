package main

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"time"
)

// qemuCapacity is the number of real VMs at a time.
const qemuCapacity = 3

// qemuTarget kills the QEMU processes of a real node at random moments of their boots,
// scripts and lives, and now and then the agent while they live.
func (b *bench) qemuTarget(ctx context.Context) (r result, err error) {
	disk, err := b.guest(ctx)
	if err != nil {
		return r, err
	}
	s, err := b.newScene(ctx, "qemu", 3)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.finish()) }()
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
	s.rules, s.calmTime = rules{ErrorAllowed: true}, 3*time.Minute
	return s.play(ctx, loadOptions{
		Workers: qemuCapacity, Keep: 1, Longest: 40 * time.Second, Scripts: 0.5, Script: "sleep 1\necho done\n",
		Template: template, Seed: b.seed, Pause: 200 * time.Millisecond,
	}, b.n, s.strikeQEMU)
}

// strikeQEMU kills one of the QEMU processes that live; every tenth time the agent
// is killed too, and started again.
func (s *scene) strikeQEMU(ctx context.Context) error {
	pause(ctx, s.between(200*time.Millisecond, 6*time.Second))
	live, err := qemus(s.dir)
	if err != nil || len(live) == 0 {
		return err
	}
	victim := live[s.rng.IntN(len(live))]
	killed, err := killQEMU(victim, s.dir)
	if err != nil || !killed {
		return err
	}
	s.kills++
	if s.kills%10 != 5 {
		return nil
	}
	pause(ctx, s.between(0, 3*time.Second))
	if err := s.nodes[0].kill(); err != nil {
		return err
	}
	s.others++
	pause(ctx, s.between(0, 2*time.Second))
	return s.nodes[0].start()
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
