package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"
)

// agents is the number of agent processes of the agent target.
const agents = 3

// agentTarget kills node agents with simulated VMs, one of them with boots that take
// their time. All pull real templates from the registry. An instance whose script was
// running may end in Error, since its outcome is unknown; it is never lost.
func agentTarget(ctx context.Context, s *scene) (r result, err error) {
	templates, err := s.pushNoise(ctx)
	if err != nil {
		return r, err
	}
	for i := range agents - 1 {
		if err := s.join(ctx, fmt.Sprintf("node%d", i), simCapacity, "sim"); err != nil {
			return r, err
		}
	}
	if err := s.simulate(ctx, "slow", 1, "--real-pull", "--boot", "300ms", "--exec", "50ms"); err != nil {
		return r, err
	}
	if err := s.awaitNodes(ctx, agents); err != nil {
		return r, err
	}
	s.machines = func() ([]machine, error) { return simMachines(s.dir) }
	s.rules = rules{Errors: []string{"outcome unknown after an agent restart"}}
	s.calmTime, s.capacity = time.Minute, agents*simCapacity
	return s.play(ctx, loadOptions{
		Workers: 5, Keep: 4, Longest: 4 * time.Second, Scripts: 0.5, Script: "sleep 300ms\necho done\n",
		Templates: templates, Seed: s.seed, Pause: 50 * time.Millisecond,
	}, s.strikeAgent)
}

// strikeAgent kills one agent at a random moment and starts it again.
func (s *scene) strikeAgent(ctx context.Context) error {
	pause(ctx, s.between(20*time.Millisecond, 1500*time.Millisecond))
	p := s.nodes[s.rng.IntN(len(s.nodes))]
	if err := p.kill(); err != nil {
		return err
	}
	s.killed("%s", p.name)
	pause(ctx, s.between(0, 500*time.Millisecond))
	return p.start()
}

// simulate starts one process with nodes that only simulate.
func (s *scene) simulate(ctx context.Context, name string, nodes int, args ...string) error {
	token, err := s.cloud.token(ctx)
	if err != nil {
		return err
	}
	args = append([]string{
		"sim", "--name", name, "--nodes", strconv.Itoa(nodes), "--capacity", strconv.Itoa(simCapacity),
		"--controller", s.cloud.controller, "--token", token, "--data-dir", filepath.Join(s.dir, name),
	}, args...)
	p := newProcess(s.dir, name, filepath.Join(s.bins, "buildnode"), args...)
	s.nodes = append(s.nodes, p)
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
