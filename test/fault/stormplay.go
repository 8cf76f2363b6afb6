package fault

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// calmStorm is how long a storm continues after the last kill: the controller has to
// serve all of it then.
const calmStorm = 5 * time.Second

// awaitUp waits until the controller is ready; from then on it is up.
func (s *scene) awaitUp(ctx context.Context) error {
	if err := s.cloud.Await(ctx); err != nil {
		return err
	}
	s.up = append(s.up, span{from: s.history.now(), to: never})
	return nil
}

// down ends the time for which the controller was up.
func (s *scene) down() {
	if n := len(s.up); n > 0 && s.up[n-1].to == never {
		s.up[n-1].to = s.history.now()
	}
}

// playStorm runs a storm, strikes, and checks the whole history and the final state.
func (s *scene) playStorm(ctx context.Context, o stormOptions) (result, error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	s.storm = startStorm(working, s.client, o)
	streams := make(chan int, 1)
	go func() { streams <- s.client.watch(working) }()
	err := s.strikes(working, s.strikeController)
	if err == nil {
		err = s.awaitUp(ctx)
	}
	rig.Pause(ctx, calmStorm)
	s.down()
	stop()
	s.storm.wait()
	synced := <-streams
	if err != nil {
		return result{}, err
	}
	s.say("%d kills, %d orderly restarts, %d acknowledged; waiting for calm", s.kills, s.restarts,
		s.history.acknowledged())
	return s.checkStorm(ctx, o, synced)
}

// checkStorm checks the idle cloud, the empty one, and the whole history.
func (s *scene) checkStorm(ctx context.Context, o stormOptions, synced int) (result, error) {
	r := s.result()
	_, calm, end, err := s.calmThenEmpty(ctx)
	if err != nil {
		return r, err
	}
	past, err := s.client.past(ctx)
	if err != nil {
		return r, err
	}
	var calls findings
	checkPast(s.history.book.lives, past, s.history.start, &calls)
	all, read := s.history.spill.each()
	sum := newStormChecker(s.history.book, s.rules, stormSlots, s.up).check(all, &calls)
	sum.Streams, sum.Restarts, sum.Need = synced, s.restarts, float64(o.Rate)
	r.count(calls, calm, end)
	r.Acknowledged, r.Errors, r.Storm = s.history.acknowledged(), s.history.errored(), &sum
	return r, read()
}
