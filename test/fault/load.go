package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// loadOptions are how the clients behave.
type loadOptions struct {
	Workers   int
	Keep      int           // instances that are left alive at a time, so that kills meet some at rest
	Longest   time.Duration // a life lasts up to this
	Scripts   float64       // share of creates with a monitored startup script
	Script    string
	Templates []string // taken one after another, so that nodes pull again and again
	Seed      uint64
	Pause     time.Duration // between two looks
}

// load is a number of clients that create, watch and terminate instances, as jobs of
// a CI do, whether the controller answers or not.
type load struct {
	loadOptions
	client *client
	wg     sync.WaitGroup

	mu   sync.Mutex // guards the fields below
	kept []string   // instances left alive, oldest first
}

// start begins the load; it ends with the context, and wait waits for its last call.
func startLoad(ctx context.Context, c *client, o loadOptions) *load {
	l := &load{loadOptions: o, client: c}
	for i := range o.Workers {
		rng := rand.New(rand.NewPCG(o.Seed, uint64(i)+1000)) //nolint:gosec // a test that can be repeated
		l.wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				template := l.Templates[n/4%len(l.Templates)]
				l.job(ctx, rng, order{Template: template, ExternalID: fmt.Sprintf("job-%d-%d", i, n), Count: 1})
			}
		})
	}
	return l
}

func (l *load) wait() { l.wg.Wait() }

// job is one create and the lives of what it made.
func (l *load) job(ctx context.Context, rng *rand.Rand, o order) {
	if rng.IntN(4) == 0 {
		o.Count = 2
	}
	if rng.Float64() < l.Scripts {
		o.Script, o.Monitoring = []byte(l.Script), true
	}
	share, keep := rng.Float64(), rng.IntN(6) == 0
	ids, err := l.client.create(ctx, o)
	if err != nil {
		rig.Pause(ctx, 100*time.Millisecond)
		return
	}
	// Squared, so that half of the lives end in their first quarter: while they wait,
	// pull and start.
	end := time.Now().Add(time.Duration(share * share * float64(l.Longest)))
	for _, id := range ids {
		l.watch(ctx, id, end)
		if keep {
			id = l.keep(id)
		}
		if id != "" {
			l.terminate(ctx, id, rng.IntN(4) == 0)
		}
	}
}

// watch looks at an instance until its time has come.
func (l *load) watch(ctx context.Context, id string, end time.Time) {
	for time.Now().Before(end) {
		state, err := l.client.look(ctx, id)
		if err == nil && (state == notFound || state == "Error") {
			return // the final checks decide whether that was right
		}
		if !rig.Pause(ctx, l.Pause) {
			return
		}
	}
}

// keep leaves an instance alive and returns the one to terminate for it, if any.
func (l *load) keep(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, id)
	if len(l.kept) <= l.Keep {
		return ""
	}
	oldest := l.kept[0]
	l.kept = l.kept[1:]
	return oldest
}

// alive returns the instances that are left alive now.
func (l *load) alive() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.kept...)
}

// terminate asks until the controller agrees, sometimes twice, and looks at what
// is shown afterwards.
func (l *load) terminate(ctx context.Context, id string, twice bool) {
	for ctx.Err() == nil {
		err := l.client.terminate(ctx, id)
		if err == nil || errors.Is(err, rig.Refusal("Not found")) {
			break
		}
		rig.Pause(ctx, 100*time.Millisecond)
	}
	if twice {
		_ = l.client.terminate(ctx, id) // the history has the answer
	}
	for range 3 {
		if state, err := l.client.look(ctx, id); err == nil && state == notFound {
			return
		}
		rig.Pause(ctx, l.Pause)
	}
}
