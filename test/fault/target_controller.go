package fault

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// simCapacity is the number of slots of a simulated node, but for those of a storm.
const simCapacity = 4

// The storm of the controller target. Its nodes have fewer slots than there are
// requests whenever the controller comes back.
const (
	stormRate  = 500 // creates a second
	stormNodes = 8
	stormSlots = 150 // of each node
)

// controllerTarget kills the controller, with the registry in the same process, under
// 500 creates a second, while simulated nodes and clients go on. No instance may end in
// Error for it.
func controllerTarget(ctx context.Context, s *scene) (r result, err error) {
	template, err := s.pushTiny(ctx)
	if err != nil {
		return r, err
	}
	s.inMemory()
	if err := s.simulateMany(ctx, "sim", stormNodes, stormSlots, "--boot", "20ms", "--pull", "30ms", "--exec",
		"20ms"); err != nil {
		return r, err
	}
	if err := s.awaitNodes(ctx, stormNodes); err != nil {
		return r, err
	}
	if s.history.spill, err = newSpill(filepath.Join(s.dir, "history.jsonl")); err != nil {
		return r, err
	}
	s.machines = func() ([]machine, error) { return simMachines(s.nodeDir()) }
	s.calmTime, s.capacity = time.Minute, stormNodes*stormSlots
	return s.playStorm(ctx, stormOptions{
		Rate: s.rate, Jobs: 3000, Longest: 1500 * time.Millisecond, Template: template, Script: "echo done\n",
		Seed: s.seed,
	})
}

// inMemory has the simulated nodes keep their data in memory where the system offers
// that: they are not killed, and share the processors with the controller, which is.
func (s *scene) inMemory() {
	if dir, err := os.MkdirTemp("/dev/shm", "buildyard-fault-"); err == nil {
		s.memory = dir
	}
}

// nodeDir is the directory below which nodes keep their data.
func (s *scene) nodeDir() string { return cmp.Or(s.memory, s.dir) }

// killPoint is a way to end a controller.
type killPoint struct {
	name  string
	share int  // of 16
	early bool // it is not awaited first
	end   func(ctx context.Context, s *scene) (killed bool, err error)
}

var killPoints = []killPoint{
	{"at work", 6, false, func(ctx context.Context, s *scene) (bool, error) {
		rig.Pause(ctx, s.between(50*time.Millisecond, 1500*time.Millisecond))
		return true, s.cut()
	}},
	{"while it started", 4, true, func(ctx context.Context, s *scene) (bool, error) {
		rig.Pause(ctx, s.between(0, 800*time.Millisecond))
		return true, s.cut()
	}},
	{"in a large create", 3, false, func(ctx context.Context, s *scene) (bool, error) {
		rig.Pause(ctx, s.between(50*time.Millisecond, 500*time.Millisecond))
		name := fmt.Sprintf("large%d:%d", s.kills, s.history.now())
		s.storm.large(ctx, name, largeCount)
		rig.Pause(ctx, s.between(0, 25*time.Millisecond))
		return true, s.cut()
	}},
	{"while it ended", 2, false, func(ctx context.Context, s *scene) (bool, error) {
		rig.Pause(ctx, s.between(50*time.Millisecond, 500*time.Millisecond))
		s.down()
		return s.cloud.Rush(s.between(0, 60*time.Millisecond))
	}},
	{"orderly", 1, false, func(ctx context.Context, s *scene) (bool, error) {
		rig.Pause(ctx, s.between(50*time.Millisecond, 1000*time.Millisecond))
		s.down()
		return false, s.cloud.End()
	}},
}

// largeCount is what the large creates ask for.
const largeCount = 100

// cut kills the controller.
func (s *scene) cut() error {
	s.down()
	return s.cloud.Kill()
}

// strikeController ends the controller at a random moment of its life and starts it again.
func (s *scene) strikeController(ctx context.Context) error {
	m := s.drawKillPoint()
	if !m.early {
		if err := s.awaitUp(ctx); err != nil {
			return err
		}
	}
	killed, err := m.end(ctx, s)
	if err != nil {
		return err
	}
	if killed {
		s.killed("controller %s", m.name)
	} else {
		s.restarts++
	}
	rig.Pause(ctx, s.between(0, 200*time.Millisecond))
	return s.cloud.Start()
}

// drawKillPoint draws one by its share.
func (s *scene) drawKillPoint() killPoint {
	all := 0
	for _, m := range killPoints {
		all += m.share
	}
	n := s.rng.IntN(all)
	for _, m := range killPoints {
		if n -= m.share; n < 0 {
			return m
		}
	}
	return killPoints[0]
}
