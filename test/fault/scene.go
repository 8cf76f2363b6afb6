package fault

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// bench is what all targets of a run share.
type bench struct {
	n    int    // kills of each target
	seed uint64 // of every choice
	rate int    // creates a second of a storm
	rig.Programs
	dir string // of everything that a run writes
	out io.Writer
}

// scene is one target's cloud with its nodes, clients and history.
type scene struct {
	*bench
	name     string
	dir      string
	rng      *rand.Rand // of the kills
	cloud    *rig.Cloud
	nodes    []*rig.Process
	client   *client
	history  *history
	rules    rules
	machines func() ([]machine, error)
	capacity int           // VMs that all nodes together take
	calmTime time.Duration // how long after the last kill everything may take to calm down

	staleness time.Duration // age that an answer may have: replicas follow the store

	needed        int            // acknowledged calls, at least
	planned       int            // kills
	hits          map[string]int // kills by program
	seeds         map[string]int // template -> versions that the run pushed; nil when nothing is saved
	kills, others int

	maintained bool // of the target with backups: the last that was acknowledged of a maintenance

	// Of the target with a storm.
	storm    *storm
	up       []span // when the controller was up
	restarts int    // orderly ones
	memory   string // directory of the nodes' data in memory; "": they have it below dir
}

// stage runs one target on a separate cloud.
func (b *bench) stage(ctx context.Context, t target) (r result, err error) {
	stream := fnv.New64a()
	_, _ = stream.Write([]byte(t.name))
	s := &scene{
		bench: b, name: t.name, needed: t.acks * t.planned(b.n), planned: t.planned(b.n), hits: map[string]int{},
		dir: filepath.Join(b.dir, t.name), history: newHistory(),
		rng: rand.New(rand.NewPCG(b.seed, stream.Sum64())), //nolint:gosec // a test that can be repeated
	}
	if err := rig.MakeDir(s.dir); err != nil {
		return r, err
	}
	if t.cloud == nil {
		return t.run(ctx, s)
	}
	if s.cloud, err = t.cloud(ctx, b.Programs, s.dir); err != nil {
		return r, err
	}
	s.client = newClient(s.cloud.Controller, s.history)
	defer func() { err = errors.Join(err, s.finish()) }()
	if err := s.cloud.Boot(ctx); err != nil {
		return r, err
	}
	return t.run(ctx, s)
}

// close ends every program of the scene. It is an error if one had ended before.
func (s *scene) close() error {
	var errs []error
	for _, p := range append(s.nodes, s.cloud.Processes()...) {
		errs = append(errs, p.End())
	}
	return errors.Join(errs...)
}

// say prints one line of progress.
func (s *scene) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, "%-10s %6.1fs %s\n", s.name, s.history.now().Seconds(), fmt.Sprintf(format, args...))
}

// newRand returns another generator, for a goroutine that chooses too.
func (s *scene) newRand() *rand.Rand {
	return rand.New(rand.NewPCG(s.rng.Uint64(), s.rng.Uint64())) //nolint:gosec // a test that can be repeated
}

// between draws a duration.
func (s *scene) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(s.rng.Int64N(int64(hi-lo)))
}

// awaitNodes waits until that many nodes are Active.
func (s *scene) awaitNodes(ctx context.Context, want int) error {
	deadline := time.Now().Add(rig.ReadyTime)
	states := map[string]string{}
	for time.Now().Before(deadline) {
		active := 0
		var err error
		if states, err = s.client.nodes(ctx); err == nil {
			for _, state := range states {
				if state == "Active" {
					active++
				}
			}
		}
		if active == want {
			return nil
		}
		for _, p := range s.nodes {
			if !p.Running() {
				return fmt.Errorf("%s ended by itself; it said: %s", p.Name, p.Tail())
			}
		}
		if !rig.Pause(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("%d nodes were not Active within %s: %v", want, rig.ReadyTime, states)
}

// play runs the load, strikes n times, continues until enough calls were acknowledged, and checks
// the result.
func (s *scene) play(ctx context.Context, o loadOptions, strike func(context.Context) error) (result, error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	load := startLoad(working, s.client, o)
	watcher := s.watchList(working, load.alive)
	err := s.strikes(ctx, strike)
	for deadline := time.Now().Add(3 * time.Minute); err == nil && s.history.acknowledged() < s.needed; {
		if time.Now().After(deadline) {
			err = fmt.Errorf("only %d calls were acknowledged", s.history.acknowledged())
		}
		rig.Pause(ctx, 100*time.Millisecond)
	}
	stop()
	load.wait()
	<-watcher
	if err != nil {
		return result{}, err
	}
	s.say("%d kills, %d other kills, %d acknowledged; waiting for calm", s.kills, s.others, s.history.acknowledged())
	return s.check(ctx)
}

// strikes kills until the target's count is reached.
func (s *scene) strikes(ctx context.Context, strike func(context.Context) error) error {
	for s.kills < s.planned {
		if err := strike(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// killed counts and prints a kill of the target.
func (s *scene) killed(format string, args ...any) {
	s.kills++
	s.say("kill %d: %s (%d acknowledged)", s.kills, fmt.Sprintf(format, args...), s.history.acknowledged())
}

// watchList lists everything again and again while the load runs: instances at rest
// must be there every time.
func (s *scene) watchList(ctx context.Context, alive func() []string) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for rig.Pause(ctx, 300*time.Millisecond) {
			_, _ = s.client.list(ctx, alive()) // the history has the answer
		}
	}()
	return done
}
