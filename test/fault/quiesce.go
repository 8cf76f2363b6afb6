package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/test/rig"
)

// cleanUpTime is how long an orphaned VM may stay: 30 full reports, at least
// 150 s, and a margin.
const cleanUpTime = 4 * time.Minute

// check waits for quiescence, checks the idle cloud, terminates everything, checks the empty cloud,
// and compares the whole history with what was acknowledged.
func (s *scene) check(ctx context.Context) (result, error) {
	r := s.result()
	last, calm, end, err := s.calmThenEmpty(ctx)
	if err != nil {
		return r, err
	}
	var calls findings
	checkCalls(withStaleness(s.history.all(), s.staleness), last.Requests, s.rules, &calls)
	r.count(calls, calm, end)
	r.Acknowledged, r.Errors = s.history.acknowledged(), s.history.errored()
	return r, nil
}

// result returns the figures of a target so far.
func (s *scene) result() result {
	return result{Target: s.name, Kills: s.kills, Planned: s.planned, Others: s.others, Needed: s.needed}
}

// calmThenEmpty checks the idle cloud, whose state it returns, terminates everything, and checks
// the empty cloud.
func (s *scene) calmThenEmpty(ctx context.Context) (last world, calm, end findings, err error) {
	calm, err = s.settle(ctx, func(w world, f *findings) {
		last = w
		checkCalm(s.history.book, w, s.rules, f)
	})
	if err != nil {
		return last, calm, end, err
	}
	s.say("calm: lost %d, orphans %d, stuck %d; terminating everything", calm.Lost, calm.Orphans, calm.Stuck)
	if err := s.terminateAll(ctx); err != nil {
		return last, calm, end, err
	}
	end, err = s.settle(ctx, checkEnd)
	return last, calm, end, err
}

// settle repeats a check until it finds nothing wrong or its time limit has passed: what is late is
// not wrong.
func (s *scene) settle(ctx context.Context, check func(world, *findings)) (f findings, err error) {
	begin := time.Now()
	for {
		w, err := s.world(ctx)
		if err != nil {
			return f, err
		}
		f = findings{}
		check(w, &f)
		limit := s.calmTime
		if f.Orphans > 0 {
			limit = max(limit, cleanUpTime)
		}
		if len(f.Problems) == 0 || time.Since(begin) > limit {
			return f, nil
		}
		s.relieve(ctx, w.Records)
		if !rig.Pause(ctx, 500*time.Millisecond) {
			return f, ctx.Err()
		}
	}
}

// relieve does what clients do with jobs that failed or ended: it terminates instances
// in Error, whose VMs hold their slots until then, and of the others as many as there
// are too many for the nodes. Otherwise the rest would wait indefinitely, and rightly.
func (s *scene) relieve(ctx context.Context, records []record) {
	surplus := len(records) - s.capacity
	var out []record
	for _, r := range records {
		if r.State == "Error" || r.State == "Started" && surplus > 0 {
			out = append(out, r)
			surplus--
		}
	}
	_ = s.terminateEach(ctx, out) // the history has the answers
}

// terminateEach terminates instances, several at a time.
func (s *scene) terminateEach(ctx context.Context, records []record) error {
	var group errgroup.Group
	group.SetLimit(16)
	for _, r := range records {
		group.Go(func() error {
			if err := s.client.terminate(ctx, r.ID); err != nil && !errors.Is(err, rig.Refusal("Not found")) {
				return fmt.Errorf("terminate instance %s: %w", r.ID, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// world reads every record and every VM. VMs are read first: the record of one that ends
// concurrently still exists then, and that of a new one already does.
func (s *scene) world(ctx context.Context) (w world, err error) {
	if w.Machines, err = s.machines(); err != nil {
		return w, fmt.Errorf("look for VMs: %w", err)
	}
	for range 20 {
		w.Records, err = s.client.list(ctx, nil)
		if err == nil && s.seeds != nil {
			err = s.lookAtSaves(ctx, &w)
		}
		if err == nil {
			return w, nil
		}
		rig.Pause(ctx, 500*time.Millisecond)
	}
	return w, fmt.Errorf("look at the world: %w", err)
}

// lookAtSaves looks at every save request, every version and what saves have left.
func (s *scene) lookAtSaves(ctx context.Context, w *world) (err error) {
	w.Seeds = s.seeds
	if w.Requests, err = s.client.requests(ctx); err != nil {
		return fmt.Errorf("list the save requests: %w", err)
	}
	if w.Versions, err = versions(ctx, s.cloud.Registry); err != nil {
		return err
	}
	if w.SaveDirs, err = saveDirs(s.dir); err != nil {
		return err
	}
	w.Uploads, err = uploads(s.cloud.Base)
	return err
}

// terminateAll asks for the end of everything that is listed.
func (s *scene) terminateAll(ctx context.Context) error {
	w, err := s.world(ctx)
	if err != nil {
		return err
	}
	return s.terminateEach(ctx, w.Records)
}
