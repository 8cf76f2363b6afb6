package main

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"time"
)

// The simulated nodes of the controller target.
const (
	simNodes    = 4
	simCapacity = 4
)

// controllerTarget kills the controller, with the registry in the same process, while
// simulated nodes and clients go on. No instance may end in Error for it.
func (b *bench) controllerTarget(ctx context.Context) (r result, err error) {
	s, err := b.newScene(ctx, "controller", 1)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.finish()) }()
	template, err := s.pushTiny(ctx)
	if err != nil {
		return r, err
	}
	token, err := s.cloud.token(ctx)
	if err != nil {
		return r, err
	}
	data := filepath.Join(s.dir, "sim")
	s.nodes = []*process{newProcess(s.dir, "sim", filepath.Join(b.bins, "buildnode"), "sim",
		"--nodes", strconv.Itoa(simNodes), "--capacity", strconv.Itoa(simCapacity),
		"--controller", s.cloud.controller, "--token", token, "--data-dir", data)}
	if err := s.nodes[0].start(); err != nil {
		return r, err
	}
	if err := s.awaitNodes(ctx, simNodes); err != nil {
		return r, err
	}
	s.machines = func() ([]machine, error) { return simMachines(data) }
	s.calmTime = time.Minute
	return s.play(ctx, loadOptions{
		Workers: 6, Keep: 5, Longest: 4 * time.Second, Scripts: 0.3, Script: "sleep 300ms\necho done\n",
		Template: template, Seed: b.seed, Pause: 50 * time.Millisecond,
	}, 6*b.n, s.strikeController)
}

// strikeController kills the controller at a random moment of its life, a quarter of
// the times while it still starts, and starts it again.
func (s *scene) strikeController(ctx context.Context) error {
	if s.rng.IntN(4) > 0 {
		if err := s.cloud.await(ctx); err != nil {
			return err
		}
		pause(ctx, s.between(50*time.Millisecond, 2*time.Second))
	} else {
		pause(ctx, s.between(0, 800*time.Millisecond))
	}
	if err := s.cloud.kill(); err != nil {
		return err
	}
	s.kills++
	pause(ctx, s.between(0, 300*time.Millisecond))
	if err := s.cloud.start(); err != nil {
		return err
	}
	if s.kills < s.n {
		return nil
	}
	return s.cloud.await(ctx)
}
