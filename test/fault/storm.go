package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// stormOptions are the amount of load.
type stormOptions struct {
	Rate     int           // creates a second
	Jobs     int           // of them at a time, at most
	Longest  time.Duration // a life lasts up to this
	Template string
	Script   string
	Seed     uint64
}

// storm is a load by the clock: what it asks for does not depend on the answers. Each
// create is a job of a CI: it polls, works and terminates what it got.
type storm struct {
	stormOptions
	client *client
	places chan struct{} // one for each job
	wg     sync.WaitGroup

	mu     sync.Mutex      // guards the fields below
	alive  map[string]bool // acknowledged, and its end was not requested
	unsure map[string]bool // external ids of creates without an answer
}

// startStorm begins the load; it ends with the context, and wait waits for its last job.
func startStorm(ctx context.Context, c *client, o stormOptions) *storm {
	s := &storm{stormOptions: o, client: c, places: make(chan struct{},
		o.Jobs), alive: map[string]bool{}, unsure: map[string]bool{}}
	s.wg.Go(func() { s.createJobs(ctx) })
	s.wg.Go(func() { s.lists(ctx) })
	return s
}

func (s *storm) wait() { s.wg.Wait() }

// createJobs begins as many jobs as are due by now, again and again.
func (s *storm) createJobs(ctx context.Context) {
	begin := time.Now()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := int(time.Since(begin).Seconds() * float64(s.Rate)); n < due; n++ {
			s.begin(ctx, n)
		}
	}
}

// begin begins the n-th job. One above the limit still counts as offered, and not as acknowledged.
func (s *storm) begin(ctx context.Context, n int) {
	rng := rand.New(rand.NewPCG(s.Seed, uint64(n))) //nolint:gosec // a test that can be repeated
	o := order{Template: s.Template, ExternalID: fmt.Sprintf("client%d:%d", n%7, n), Count: 1}
	if rng.IntN(30) == 0 {
		o.Count = 2 + rng.IntN(5)
	}
	if rng.IntN(25) == 0 {
		o.Script, o.Monitoring = []byte(s.Script), true
	}
	select {
	case s.places <- struct{}{}:
	default:
		s.client.finish(call{Op: opCreate, Begin: s.client.history.now(), ExternalID: o.ExternalID}, errNoPlace)
		return
	}
	if ctx.Err() != nil {
		<-s.places // it was free because the storm has ended
		return
	}
	s.wg.Go(func() {
		defer func() { <-s.places }()
		s.job(ctx, rng, o)
	})
}

var errNoPlace = errors.New("too many jobs are under way")

// job is one create and the lives of what it made. One of four jobs waits for a placement as long
// as it takes; the others end their instances in any state.
func (s *storm) job(ctx context.Context, rng *rand.Rand, o order) {
	share, patient, nosy := rng.Float64(), rng.IntN(4) == 0, rng.IntN(4) == 0
	ids, err := s.client.create(ctx, o)
	s.born(o, ids)
	if err != nil {
		return
	}
	end := time.Now().Add(time.Duration(share * share * float64(s.Longest)))
	for _, id := range ids {
		if patient && s.started(ctx, id) {
			end = time.Now().Add(time.Duration(share*share*float64(s.Longest)) / time.Duration(len(ids)))
		}
		if !rig.Pause(ctx, time.Until(end)) {
			return
		}
		s.terminate(ctx, id, nosy)
	}
}

// started polls an instance until it is Started, as a client does that was told to poll, and
// returns false when it ended.
func (s *storm) started(ctx context.Context, id string) bool {
	for pause := 50 * time.Millisecond; rig.Pause(ctx, pause); pause = min(2*pause, time.Second) {
		state, err := s.client.look(ctx, id)
		if err == nil && !slices.Contains(waiting, state) {
			return state == "Started"
		}
	}
	return false
}

// terminate asks until the controller agrees, and perhaps looks at what is shown then.
func (s *storm) terminate(ctx context.Context, id string, nosy bool) {
	s.mu.Lock()
	delete(s.alive, id)
	s.mu.Unlock()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := s.client.terminate(ctx, id)
		if err == nil || errors.Is(err, rig.Refusal("Not found")) {
			break
		}
		if !rig.Pause(ctx, pause) {
			return
		}
	}
	for i := 0; nosy && i < 3; i++ {
		if state, err := s.client.look(ctx, id); err == nil && state == notFound {
			return
		}
		rig.Pause(ctx, 200*time.Millisecond)
	}
}

func (s *storm) born(o order, ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.alive[id] = true
	}
	if len(ids) == 0 {
		s.unsure[o.ExternalID] = true
	}
}

// lists looks at everything again and again. What came of creates without an answer is
// found there, and terminated: a client whose call failed asks again under another name.
func (s *storm) lists(ctx context.Context) {
	places := make(chan struct{}, 16)
	for rig.Pause(ctx, time.Second) {
		records, _ := s.client.list(ctx, s.living()) // the history has the answer
		for _, r := range records {
			s.mu.Lock()
			found := s.unsure[r.ExternalID] && !slices.Contains(ending, r.State)
			s.mu.Unlock()
			if !found {
				continue
			}
			places <- struct{}{}
			s.wg.Go(func() {
				defer func() { <-places }()
				_ = s.client.terminate(ctx, r.ID) // the next list shows it again
			})
		}
	}
}

// large begins a job that requests that many instances in one create.
func (s *storm) large(ctx context.Context, name string, count int) {
	rng := rand.New(rand.NewPCG(s.Seed, uint64(count))) //nolint:gosec // a test that can be repeated
	s.wg.Go(func() { s.job(ctx, rng, order{Template: s.Template, ExternalID: name, Count: count}) })
}

// living returns the instances that every list must show.
func (s *storm) living() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.alive))
}
