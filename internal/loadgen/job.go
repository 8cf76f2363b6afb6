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

// runJob makes one create and handles its instance until the end. clear terminates what due or ctx
// interrupted.
func (r *runner) runJob(due, ctx context.Context, n int) {
	body, externalID, err := r.createBody(n)
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
		r.addOpen(id)
	}
	if err != nil || len(ids) != 1 {
		sleep(ctx, 100*time.Millisecond) // protects an unavailable controller from callers without a rate
		return
	}
	rng := r.rng(n)
	j := &job{runner: r, id: ids[0], externalID: externalID, rng: rng}
	if !j.awaitStarted(due, began) {
		return
	}
	j.holdInstance(ctx, r.HoldTime/2+time.Duration(rng.Float64()*float64(r.HoldTime)))
	for range r.Profile.TerminateCalls {
		j.terminateInstance(ctx)
	}
}

func (r *runner) addOpen(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.openInstances[id] = true
	r.results.update(func(p *Report) { p.Created++ })
}

// removeOpen records an acknowledged termination.
func (r *runner) removeOpen(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.openInstances[id] {
		delete(r.openInstances, id)
		r.results.update(func(p *Report) { p.Terminated++ })
	}
}

// job is one instance.
type job struct {
	*runner
	id         string
	externalID string
	rng        *rand.Rand
}

// waitForPoll waits until the next poll; the polls of many jobs spread out.
func (j *job) waitForPoll(ctx context.Context) bool {
	poll := j.Profile.PollInterval
	return sleep(ctx, poll-poll/10+time.Duration(j.rng.Float64()*float64(poll)/5))
}

// awaitStarted polls until the instance is Started, and reports whether it is. An instance in Error is
// terminated, or left to clear by profiles that make no further call.
func (j *job) awaitStarted(ctx context.Context, began time.Time) bool {
	for {
		state, err := j.getState(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case IsNotFound(err):
			j.removeOpen(j.id)
			return false
		case state == stateStarted:
			j.results.record(OpStart, time.Since(began), nil)
			j.results.update(func(p *Report) { p.Started++ })
			return true
		case state == stateError:
			j.results.update(func(p *Report) { p.Failed++ })
			if !j.Profile.IgnoresErrored {
				j.terminateInstance(ctx)
			}
			return false
		}
		if !j.waitForPoll(ctx) {
			return false
		}
	}
}

// getState returns the state of the instance: by its ID, or from the list of all instances.
func (j *job) getState(ctx context.Context) (state string, err error) {
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

// holdInstance keeps the instance for the time hold.
func (j *job) holdInstance(ctx context.Context, hold time.Duration) {
	over, cancel := context.WithTimeout(ctx, hold)
	defer cancel()
	if !j.Profile.PollsWhileRunning {
		<-over.Done()
		return
	}
	for j.waitForPoll(over) {
		_ = j.call(over, OpGet, func(ctx context.Context) error {
			_, err := j.client.Get(ctx, j.id)
			return err
		})
	}
}

// terminateInstance terminates the instance.
func (j *job) terminateInstance(ctx context.Context) {
	if j.terminate(ctx, j.id) == nil {
		j.removeOpen(j.id)
	}
}

func (r *runner) terminate(ctx context.Context, id string) error {
	return r.call(ctx, OpTerminate, func(ctx context.Context) error { return r.client.Terminate(ctx, id) })
}

// cleanUp terminates the open instances, and those that only the controller knows: a create whose
// response was lost. It returns how many instances of this run are left.
func (r *runner) cleanUp(ctx context.Context) (left int, err error) {
	for {
		r.terminateMany(ctx, r.openIDs())
		var items []api.InstanceItem
		if items, err = r.client.List(ctx); err == nil {
			var alive []string
			alive, left = r.ownInstances(items)
			r.terminateMany(ctx, alive)
		}
		if err == nil && left == 0 && len(r.openIDs()) == 0 {
			return 0, nil
		}
		if IsDenied(err) || !sleep(ctx, 250*time.Millisecond) {
			return max(left, len(r.openIDs())), err
		}
	}
}

// ownInstances selects the instances of this run: alive are those without a requested termination, left is
// the total number.
func (r *runner) ownInstances(items []api.InstanceItem) (alive []string, left int) {
	for _, item := range items {
		state := item.VM.InstanceState
		if item.ExternalID == nil || !strings.HasPrefix(*item.ExternalID, r.externalIDPrefix()) ||
			state == stateTerminated {
			continue
		}
		left++
		if state != stateTerminating {
			alive = append(alive, item.InstanceID)
		}
	}
	return alive, left
}

// terminateMany terminates instances; the next round of clear retries failed calls.
func (r *runner) terminateMany(ctx context.Context, ids []string) {
	var wait sync.WaitGroup
	for _, id := range ids {
		wait.Go(func() {
			if r.terminate(ctx, id) == nil {
				r.removeOpen(id)
			}
		})
	}
	wait.Wait()
}

func (r *runner) openIDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]string, 0, len(r.openInstances))
	for id := range r.openInstances {
		list = append(list, id)
	}
	return list
}
