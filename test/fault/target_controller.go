package main

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// The simulated nodes of the controller target.
const (
	simNodes    = 4
	simCapacity = 4
)

// controllerTarget kills the controller, with the registry in the same process, while
// simulated nodes and clients go on. No instance may end in Error for it.
func controllerTarget(ctx context.Context, s *scene) (r result, err error) {
	template, err := s.pushTiny(ctx)
	if err != nil {
		return r, err
	}
	if err := s.simulate(ctx, "sim", simNodes, "--boot", "400ms", "--pull", "600ms", "--exec", "50ms"); err != nil {
		return r, err
	}
	if err := s.awaitNodes(ctx, simNodes); err != nil {
		return r, err
	}
	s.machines = func() ([]machine, error) { return simMachines(s.dir) }
	s.calmTime, s.capacity = time.Minute, simNodes*simCapacity
	return s.play(ctx, loadOptions{
		Workers: 6, Keep: 5, Longest: 4 * time.Second, Scripts: 0.3, Script: "sleep 300ms\necho done\n",
		Templates: []string{template}, Seed: s.seed, Pause: 50 * time.Millisecond,
	}, s.strikeController)
}

// strikeController kills the controller at a random moment of its life, a quarter of
// the times while it still starts, and starts it again.
func (s *scene) strikeController(ctx context.Context) error {
	moment := "while it started"
	if s.rng.IntN(4) > 0 {
		moment = "at work"
		if err := s.cloud.Await(ctx); err != nil {
			return err
		}
		rig.Pause(ctx, s.between(50*time.Millisecond, 2*time.Second))
	} else {
		rig.Pause(ctx, s.between(0, 800*time.Millisecond))
	}
	if err := s.cloud.Kill(); err != nil {
		return err
	}
	s.killed("controller %s", moment)
	rig.Pause(ctx, s.between(0, 300*time.Millisecond))
	if err := s.cloud.Start(); err != nil {
		return err
	}
	if s.kills < s.planned {
		return nil
	}
	return s.cloud.Await(ctx)
}
