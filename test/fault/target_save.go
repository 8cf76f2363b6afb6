package fault

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// saveTarget kills controller, registry and agents, each a separate process, while clients save and
// restart simulated VMs. The VMs are simulated; the pushes are real.
func saveTarget(ctx context.Context, s *scene) (r result, err error) {
	templates, err := s.pushNoise(ctx, 2)
	if err != nil {
		return r, err
	}
	if err := s.joinSimulated(ctx); err != nil {
		return r, err
	}
	s.machines = func() ([]machine, error) { return simMachines(s.dir) }
	s.seeds = map[string]int{templates[0]: 1, templates[1]: 1}
	s.rules = rules{Errors: []string{lostScript}}
	s.calmTime, s.capacity = time.Minute, agents*simCapacity
	load, err := s.playSaves(ctx,
		saveOptions{Workers: 8, Sweepers: 2, Keep: 3, Base: templates[0], Target: templates[1], Seed: s.seed})
	if err != nil {
		return r, err
	}
	return s.checkSaved(ctx, trial{ends: load.ends})
}

// lostScript is in the message of a script whose end was not observed, since the agent died.
const lostScript = "unknown after an agent restart"

// playSaves runs the load, strikes, and continues until enough calls were acknowledged.
func (s *scene) playSaves(ctx context.Context, o saveOptions) (*saveLoad, error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	load := startSaveLoad(working, s.client, o)
	watcher := s.watchList(working, load.alive)
	err := s.strikes(ctx, s.strikeSave)
	for deadline := time.Now().Add(3 * time.Minute); err == nil && s.history.acknowledged() < s.needed; {
		if time.Now().After(deadline) {
			err = fmt.Errorf("only %d calls were acknowledged", s.history.acknowledged())
		}
		rig.Pause(ctx, 100*time.Millisecond)
	}
	stop()
	load.wait()
	<-watcher
	s.say("%d kills, %d acknowledged; waiting for calm", s.kills, s.history.acknowledged())
	return load, err
}

// strikeSave kills one program and starts it again: half of the times an agent, and
// half of the times while something is being saved.
func (s *scene) strikeSave(ctx context.Context) error {
	rig.Pause(ctx, s.between(20*time.Millisecond, 800*time.Millisecond))
	busy, moment := api.InstanceItem{}, "at any time"
	if s.rng.IntN(2) == 0 {
		busy = s.lurk(ctx)
	}
	if busy.InstanceID != "" {
		moment = "while an instance was " + step(busy.VM)
	}
	victims := []*rig.Process{s.cloud.Process, s.cloud.Store}
	if s.rng.IntN(2) == 0 {
		victims = s.nodes
		if p := s.holder(busy.InstanceID); p != nil {
			victims = []*rig.Process{p}
		}
	}
	p := victims[s.rng.IntN(len(victims))]
	if err := p.Kill(); err != nil {
		return err
	}
	s.killed("%s, %s", p.Name, moment)
	s.hits[p.Name]++
	rig.Pause(ctx, s.between(0, 500*time.Millisecond))
	if err := s.again(ctx, p); err != nil || s.kills < s.planned {
		return err
	}
	return s.cloud.Await(ctx)
}

// again starts a program again. Simulated nodes join at every start, for which they
// need the controller.
func (s *scene) again(ctx context.Context, p *rig.Process) error {
	if p.Name != slowNode {
		return p.Start()
	}
	if err := s.cloud.Await(ctx); err != nil {
		return err
	}
	before := joins(p)
	if err := p.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(rig.ReadyTime); joins(p) == before; {
		if !p.Running() || time.Now().After(deadline) {
			return fmt.Errorf("%s did not join again; it said: %s", p.Name, p.Tail())
		}
		if !rig.Pause(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// joins counts how often simulated nodes have joined, by the log of their process.
func joins(p *rig.Process) int {
	raw, _ := os.ReadFile(p.Log) // it is not there before its first line
	return bytes.Count(raw, []byte("simulated nodes started"))
}

// lurk waits a little for an instance that is being saved, and then for a moment.
func (s *scene) lurk(ctx context.Context) (found api.InstanceItem) {
	for range 60 {
		items, _ := s.client.items(ctx)
		items = slices.DeleteFunc(items, func(i api.InstanceItem) bool { return i.VM.InstanceState != "Pushing" })
		if len(items) > 0 {
			found = items[s.rng.IntN(len(items))]
			break
		}
		if !rig.Pause(ctx, 20*time.Millisecond) {
			break
		}
	}
	rig.Pause(ctx, s.between(0, 150*time.Millisecond))
	return found
}

// holder returns the agent's process that has an instance in its journal; nil when none has.
func (s *scene) holder(instance string) *rig.Process {
	if instance == "" {
		return nil
	}
	for _, p := range s.nodes {
		for _, pattern := range []string{"instances", filepath.Join("*", "instances")} {
			if found, _ := filepath.Glob(filepath.Join(s.dir, p.Name, pattern, instance)); len(found) > 0 {
				return p
			}
		}
	}
	return nil
}
