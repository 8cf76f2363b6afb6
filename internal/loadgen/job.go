package loadgen

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
)

// The states that a job distinguishes.
const (
	stateStarted     = "Started"
	stateError       = "Error"
	stateTerminating = "Terminating"
	stateTerminated  = "Terminated"
)

// job makes one create and handles its instance until the end. clear terminates what due or ctx
// interrupted.
func (r *runner) job(due, ctx context.Context, n int) {
	body, externalID, err := r.order(n)
	if err != nil {
		panic(err) // the request consists of strings
	}
	began := time.Now()
	var ids []string
	err = r.call(ctx, OpCreate, func(ctx context.Context) (err error) {
		ids, err = r.client.create(ctx, body, 1)
		return err
	})
	for _, id := range ids {
		r.keep(id)
	}
	if err != nil || len(ids) != 1 {
		pause(ctx, 100*time.Millisecond) // protects an unavailable controller from callers without a rate
		return
	}
	rng := r.rng(n)
	j := &job{runner: r, id: ids[0], externalID: externalID, rng: rng}
	if !j.start(due, began) {
		return
	}
	j.work(ctx, r.Hold/2+time.Duration(rng.Float64()*float64(r.Hold)))
	for range r.Profile.Ends {
		j.end(ctx)
	}
}

func (r *runner) keep(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[id] = true
	r.results.count(func(p *Report) { p.Created++ })
}

// ended records an acknowledged termination.
func (r *runner) ended(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[id] {
		delete(r.open, id)
		r.results.count(func(p *Report) { p.Terminated++ })
	}
}

// job is one instance.
type job struct {
	*runner
	id         string
	externalID string
	rng        *rand.Rand
}

// wait waits until the next poll; the polls of many jobs spread out.
func (j *job) wait(ctx context.Context) bool {
	poll := j.Profile.Poll
	return pause(ctx, poll-poll/10+time.Duration(j.rng.Float64()*float64(poll)/5))
}

// start polls until the instance is Started, and reports whether it is. An instance in Error is
// terminated, or left to clear by profiles that make no further call.
func (j *job) start(ctx context.Context, began time.Time) bool {
	for {
		state, err := j.look(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case IsNotFound(err):
			j.ended(j.id)
			return false
		case state == stateStarted:
			j.results.took(OpStart, time.Since(began), nil)
			j.results.count(func(p *Report) { p.Started++ })
			return true
		case state == stateError:
			j.results.count(func(p *Report) { p.Failed++ })
			if !j.Profile.LeavesError {
				j.end(ctx)
			}
			return false
		}
		if !j.wait(ctx) {
			return false
		}
	}
}

// look returns the state of the instance: by its ID, or from the list of all instances.
func (j *job) look(ctx context.Context) (state string, err error) {
	if !j.Profile.FindsByList {
		err = j.call(ctx, OpGet, func(ctx context.Context) error {
			inst, err := j.client.Get(ctx, j.id)
			state = inst.InstanceState
			return err
		})
		return state, err
	}
	var items []api.InstanceItem
	err = j.call(ctx, OpList, func(ctx context.Context) (err error) {
		items, err = j.client.List(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	for _, item := range items {
		if item.ExternalID != nil && *item.ExternalID == j.externalID {
			return item.VM.InstanceState, nil
		}
	}
	return "", &APIError{200, notFound}
}

// work keeps the instance for the time hold.
func (j *job) work(ctx context.Context, hold time.Duration) {
	over, cancel := context.WithTimeout(ctx, hold)
	defer cancel()
	if !j.Profile.Looks {
		<-over.Done()
		return
	}
	for j.wait(over) {
		_ = j.call(over, OpGet, func(ctx context.Context) error {
			_, err := j.client.Get(ctx, j.id)
			return err
		})
	}
}

// end terminates the instance.
func (j *job) end(ctx context.Context) {
	if j.terminate(ctx, j.id) == nil {
		j.ended(j.id)
	}
}

func (r *runner) terminate(ctx context.Context, id string) error {
	return r.call(ctx, OpTerminate, func(ctx context.Context) error { return r.client.Terminate(ctx, id) })
}

// clear terminates the open instances, and those that only the controller knows: a create whose
// response was lost. It returns how many instances of this run are left.
func (r *runner) clear(ctx context.Context) (left int, err error) {
	for {
		r.endAll(ctx, r.opened())
		var items []api.InstanceItem
		if items, err = r.client.List(ctx); err == nil {
			var alive []string
			alive, left = r.mine(items)
			r.endAll(ctx, alive)
		}
		if err == nil && left == 0 && len(r.opened()) == 0 {
			return 0, nil
		}
		if IsDenied(err) || !pause(ctx, 250*time.Millisecond) {
			return max(left, len(r.opened())), err
		}
	}
}

// mine selects the instances of this run: alive are those without a requested termination, left is
// the total number.
func (r *runner) mine(items []api.InstanceItem) (alive []string, left int) {
	for _, item := range items {
		state := item.VM.InstanceState
		if item.ExternalID == nil || !strings.HasPrefix(*item.ExternalID, r.prefix()) || state == stateTerminated {
			continue
		}
		left++
		if state != stateTerminating {
			alive = append(alive, item.InstanceID)
		}
	}
	return alive, left
}

// endAll terminates instances; the next round of clear retries failed calls.
func (r *runner) endAll(ctx context.Context, ids []string) {
	var wait sync.WaitGroup
	for _, id := range ids {
		wait.Go(func() {
			if r.terminate(ctx, id) == nil {
				r.ended(id)
			}
		})
	}
	wait.Wait()
}

func (r *runner) opened() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]string, 0, len(r.open))
	for id := range r.open {
		list = append(list, id)
	}
	return list
}
