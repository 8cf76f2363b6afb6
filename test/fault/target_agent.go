package fault

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// agents is the number of agent processes of the agent target.
const agents = 3

// slowNode is the process of the node whose boots take their time.
const slowNode = "slow"

// noises is the number of its templates.
const noises = 8

// agentTarget kills node agents with simulated VMs, one of them with boots that take
// their time. All pull real templates from the registry. An instance whose script was
// running may end in Error, since its outcome is unknown; it is never lost.
func agentTarget(ctx context.Context, s *scene) (r result, err error) {
	templates, err := s.pushNoise(ctx, noises)
	if err != nil {
		return r, err
	}
	if err := s.joinSimulated(ctx); err != nil {
		return r, err
	}
	s.machines = func() ([]machine, error) { return simMachines(s.dir) }
	s.rules = rules{Errors: []string{lostScript}}
	s.calmTime, s.capacity = time.Minute, agents*simCapacity
	return s.play(ctx, loadOptions{
		Workers: 5, Keep: 4, Longest: 4 * time.Second, Scripts: 0.5, Script: "sleep 300ms\necho done\n",
		Templates: templates, Seed: s.seed, Pause: 50 * time.Millisecond,
	}, s.strikeAgent)
}

// joinSimulated starts the agents with simulated VMs; on the last of them boots and
// scripts take their time.
func (s *scene) joinSimulated(ctx context.Context) error {
	for i := range agents - 1 {
		if err := s.join(ctx, fmt.Sprintf("node%d", i), simCapacity, "sim"); err != nil {
			return err
		}
	}
	if err := s.simulate(ctx, slowNode, 1, "--real-pull", "--boot", "300ms", "--exec", "50ms"); err != nil {
		return err
	}
	return s.awaitNodes(ctx, agents)
}

// strikeAgent kills one agent at a random moment and starts it again.
func (s *scene) strikeAgent(ctx context.Context) error {
	rig.Pause(ctx, s.between(20*time.Millisecond, 1500*time.Millisecond))
	p := s.nodes[s.rng.IntN(len(s.nodes))]
	if err := p.Kill(); err != nil {
		return err
	}
	s.killed("%s", p.Name)
	rig.Pause(ctx, s.between(0, 500*time.Millisecond))
	return p.Start()
}

// simulate starts one process with nodes that only simulate.
func (s *scene) simulate(ctx context.Context, name string, nodes int, args ...string) error {
	return s.simulateMany(ctx, name, nodes, simCapacity, args...)
}

// simulateMany does so with another number of slots for each node.
func (s *scene) simulateMany(ctx context.Context, name string, nodes, slots int, args ...string) error {
	token, err := s.cloud.Token(ctx)
	if err != nil {
		return err
	}
	args = append([]string{
		"sim", "--name", name, "--nodes", strconv.Itoa(nodes), "--capacity", strconv.Itoa(slots),
		"--controller", s.cloud.Controller, "--token", token, "--data-dir", filepath.Join(s.nodeDir(), name),
	}, args...)
	p := rig.NewProcess(s.dir, name, s.Path("buildnode"), args...)
	s.nodes = append(s.nodes, p)
	return p.Start()
}

// join makes this machine a node of the scene once more.
func (s *scene) join(ctx context.Context, name string, capacity int, driver string) error {
	p, err := s.cloud.Join(ctx, rig.NodeOptions{Name: name, Capacity: capacity, Driver: driver})
	if p != nil {
		s.nodes = append(s.nodes, p)
	}
	return err
}
