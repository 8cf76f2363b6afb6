package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"
)

// agents is the number of agent processes of the agent target.
const agents = 3

// agentTarget kills node agents with simulated VMs. An instance whose script was
// running may end in Error, since its outcome is unknown; it is never lost.
func (b *bench) agentTarget(ctx context.Context) (r result, err error) {
	s, err := b.newScene(ctx, "agent", 2)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.finish()) }()
	template, err := s.pushTiny(ctx)
	if err != nil {
		return r, err
	}
	for i := range agents {
		if err := s.join(ctx, fmt.Sprintf("node%d", i), simCapacity, "sim"); err != nil {
			return r, err
		}
	}
	if err := s.awaitNodes(ctx, agents); err != nil {
		return r, err
	}
	s.machines = func() ([]machine, error) { return simMachines(s.dir) }
	s.rules, s.calmTime = rules{ErrorAllowed: true}, time.Minute
	return s.play(ctx, loadOptions{
		Workers: 5, Keep: 4, Longest: 4 * time.Second, Scripts: 0.5, Script: "sleep 300ms\necho done\n",
		Template: template, Seed: b.seed, Pause: 50 * time.Millisecond,
	}, 4*b.n, s.strikeAgent)
}

// strikeAgent kills one agent at a random moment and starts it again.
func (s *scene) strikeAgent(ctx context.Context) error {
	pause(ctx, s.between(20*time.Millisecond, 1500*time.Millisecond))
	p := s.nodes[s.rng.IntN(len(s.nodes))]
	if err := p.kill(); err != nil {
		return err
	}
	s.kills++
	pause(ctx, s.between(0, 500*time.Millisecond))
	return p.start()
}

// join makes this machine a node of the scene once more, with a data directory of its
// own, and starts the agent.
func (s *scene) join(ctx context.Context, name string, capacity int, driver string) error {
	token, err := s.cloud.token(ctx)
	if err != nil {
		return err
	}
	program, data := filepath.Join(s.bins, "buildnode"), filepath.Join(s.dir, name)
	_, err = output(ctx, "", program, "join", s.cloud.controller, "--token", token, "--name", name,
		"--host", "127.0.0.1", "--capacity", strconv.Itoa(capacity), "--data-dir", data)
	if err != nil {
		return err
	}
	p := newProcess(s.dir, name, program, "run", "--driver", driver, "--data-dir", data)
	s.nodes = append(s.nodes, p)
	return p.start()
}
