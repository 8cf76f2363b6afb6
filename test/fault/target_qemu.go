package fault

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// qemuCapacity is the number of real VMs at a time.
const qemuCapacity = 3

// qemuTarget kills the QEMU processes of a real node at random moments of their boots,
// scripts and lives, and now and then the agent while they live. Half of the guests
// boot, the others resume from a saved state.
func qemuTarget(ctx context.Context, s *scene) (r result, err error) {
	disk, err := s.Guest(ctx, s.bench.dir)
	if err != nil {
		return r, err
	}
	template, err := s.cloud.PushGuest(ctx, disk)
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
	s.seeds, s.calmTime, s.capacity = map[string]int{template: 1}, 3*time.Minute, qemuCapacity
	saved, err := s.warm(ctx, template, "node")
	if err != nil {
		return r, err
	}
	// -1 is a script that was cut off when its VM was killed; the scripts of this test never return
	// it.
	s.rules = rules{Errors: []string{"QEMU ended", "startup script exit code -1", lostScript}}
	return s.play(ctx, loadOptions{
		Workers: qemuCapacity, Keep: 1, Longest: time.Minute, Scripts: 0.5, Script: "sleep 3\necho done\n",
		Templates: []string{saved.source.template, template}, Seed: s.seed, Pause: 200 * time.Millisecond,
	}, s.strikeQEMU)
}

// strikeQEMU kills one of the QEMU processes that live; every tenth time the agent
// is killed too, and started again.
func (s *scene) strikeQEMU(ctx context.Context) error {
	rig.Pause(ctx, s.between(200*time.Millisecond, 4*time.Second))
	target, state, err := s.drawProcess(ctx)
	if err != nil || target.PID == 0 {
		return err
	}
	killed, err := target.Kill(s.dir)
	if err != nil || !killed {
		return err
	}
	s.killed("QEMU %d of instance %s, %s", target.PID, target.UUID, state)
	if s.kills%10 != 5 {
		return nil
	}
	rig.Pause(ctx, s.between(0, 3*time.Second))
	if err := s.nodes[0].Kill(); err != nil {
		return err
	}
	s.others++
	s.say("killed the agent too")
	rig.Pause(ctx, s.between(0, 2*time.Second))
	return s.nodes[0].Start()
}

// drawProcess draws a process, and returns the state of its instance. Two times in three it waits for
// one that is Started: most lives end before, since boots take long.
func (s *scene) drawProcess(ctx context.Context) (q rig.QEMU, state string, err error) {
	patience := time.Duration(0)
	if s.rng.IntN(3) > 0 {
		patience = 20 * time.Second
	}
	for deadline := time.Now().Add(patience); ; {
		live, err := rig.QEMUs(s.dir)
		if err != nil {
			return q, "", err
		}
		states := s.states(ctx)
		started := slices.DeleteFunc(slices.Clone(live), func(q rig.QEMU) bool { return states[q.UUID] != "Started" })
		late := !time.Now().Before(deadline)
		if len(started) > 0 && patience > 0 {
			live, late = started, true
		}
		if late && len(live) == 0 {
			return q, "", nil
		}
		if late {
			q = live[s.rng.IntN(len(live))]
			return q, states[q.UUID], nil
		}
		rig.Pause(ctx, 200*time.Millisecond)
	}
}

// states returns the states of all instances; none when the controller does not answer.
func (s *scene) states(ctx context.Context) map[string]string {
	states := map[string]string{}
	records, _ := s.client.list(ctx, nil) // the history has the error
	for _, r := range records {
		states[r.ID] = r.State
	}
	return states
}
