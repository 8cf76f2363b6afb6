package pools

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	lookInterval    = time.Second // at which the leader looks at the pools without a cause
	minLookInterval = 100 * time.Millisecond
	resolveInterval = 10 * time.Second // at which it looks for another version behind the tag of a pool
	statsInterval   = 30 * time.Second // at which it stores the sums
	crowdedLimit    = 20               // requests without a free slot for which one look ends standbys
	maxBoots        = 50               // standbys that one look boots for a pool
	awayDelay       = time.Minute      // after which standbys on a node that takes no starts do not count
	agedRetry       = 5 * time.Minute  // after which the next standby ends for its age, at the latest
	firstRetry      = 5 * time.Second  // after the first standby that failed; it doubles up to lastRetry
	lastRetry       = 5 * time.Minute
)

// poolState is what the leader knows of a pool besides its record. Nothing of it is stored.
type poolState struct {
	tag      string // that ref belongs to
	ref      farm.TemplateRef
	resolved time.Time // when that was the version
	gone     bool      // the version does not exist: no start can claim a standby
	problem  string
	failures int       // standbys that failed since one became ready
	retryAt  time.Time // when the next may boot
	agedAt   time.Time // when one ended for its age in whose place none has become ready; zero: there is none
}

// Observe follows the records: it counts what happens to standbys, and wakes the leader when there may be work.
func (s *Pools) Observe(events []store.Event) {
	wake := false
	for _, e := range events {
		switch e.Kind {
		case record.KindPool:
			wake = true
		case record.KindInstance:
			was, _ := e.Old.(*farm.Instance)
			now, _ := e.New.(*farm.Instance)
			s.count(was, now)
			wake = wake || was != nil && was.IsStandby() || now != nil && (now.IsStandby() || now.AwaitsPlacement())
		}
	}
	if wake {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// Lead keeps the standbys of all pools until the context ends. Only the leader calls it.
func (s *Pools) Lead(ctx context.Context, term *record.Term) {
	s.mu.Lock()
	s.states, s.sums = map[string]poolState{}, map[string]*farm.PoolStats{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.states, s.sums = map[string]poolState{}, nil
	}()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	last, stored := s.db.Now(), s.db.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-tick.C:
		}
		now := s.db.Now()
		s.addSlotTime(now.Sub(last))
		last = now
		if err := s.look(ctx, term, now); err != nil && ctx.Err() == nil {
			s.db.Log.WarnContext(ctx, "keeping the standbys of pools failed; retrying", "error", err)
		}
		if now.Sub(stored) >= statsInterval {
			stored = now
			s.storeStats(ctx, term)
		}
		select { // many changes are looked at together
		case <-ctx.Done():
			return
		case <-time.After(minLookInterval):
		}
	}
}

// look does what is due for all pools: it ends standbys and boots new ones.
func (s *Pools) look(ctx context.Context, term *record.Term, now time.Time) error {
	if s.o.Paused() || s.db.Tables.Pools.Len() == 0 && len(s.allStandbys()) == 0 {
		return nil
	}
	s.yield(ctx, term)
	errs := []error{s.endWithoutPool(ctx, term)}
	for _, p := range s.db.Tables.Pools.All() {
		s.resolve(ctx, p, now)
		errs = append(errs, s.keep(ctx, term, p))
	}
	return errors.Join(errs...)
}

// resolve notes the current version of a pool. The last known one remains while the registry does not answer.
func (s *Pools) resolve(ctx context.Context, p *farm.Pool, now time.Time) {
	s.mu.Lock()
	state := s.states[p.ID]
	s.mu.Unlock()
	if key := p.TemplateID + " " + p.Tag; state.tag != key {
		state = poolState{tag: key}
	}
	if !state.resolved.IsZero() && now.Sub(state.resolved) < resolveInterval {
		return
	}
	ref, err := s.o.Resolve(ctx, p.TemplateID, p.Tag)
	e, _ := errors.AsType[*farm.Error](err)
	state.gone = e != nil && e.Code == farm.CodeRefused && farm.CodeOf(e.Err) != farm.CodeUnavailable
	switch {
	case state.gone:
		state.problem = "no start can claim a standby: " + err.Error() + "; change or delete the pool"
	case err != nil:
		state.problem = err.Error()
	default:
		state.ref, state.problem = ref, ""
	}
	state.resolved = now
	s.setState(p.ID, func(to *poolState) { *to = state })
}

func (s *Pools) setState(pool string, edit func(*poolState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.states[pool]
	edit(&state)
	s.states[pool] = state
}

// standbys returns the standbys of a pool that are not ending, the oldest first.
func (s *Pools) standbys(pool string) []*farm.Instance {
	var list []*farm.Instance
	for _, inst := range s.db.Tables.Instances.Where(record.ByPool, pool) {
		if inst.State != farm.Terminating && inst.State != farm.Terminated {
			list = append(list, inst)
		}
	}
	slices.SortFunc(list, func(a, b *farm.Instance) int { return a.Created.Compare(b.Created) })
	return list
}

// wanted returns how many standbys a pool is to have now: none in a group that was deleted.
func (s *Pools) wanted(p *farm.Pool) int {
	if p.GroupID != "" {
		if _, _, exists := s.db.Tables.Groups.Get(p.GroupID); !exists {
			return 0
		}
	}
	return p.WantedAt(s.db.Now())
}

// keep ends the standbys of a pool that it must not have any longer, and boots those that it lacks.
func (s *Pools) keep(ctx context.Context, term *record.Term, p *farm.Pool) error {
	s.mu.Lock()
	state := s.states[p.ID]
	s.mu.Unlock()
	now, wanted := s.db.Now(), s.wanted(p)
	if state.gone {
		wanted = 0
	}
	isKnown := state.ref != farm.TemplateRef{} // else nothing is known to be wrong with the versions
	var good, aged []*farm.Instance
	booting := 0
	for _, inst := range s.standbys(p.ID) {
		node, _, exists := s.db.Tables.Nodes.Get(inst.NodeID)
		switch {
		case inst.State == farm.Errored || inst.State == farm.Stopped || inst.State == farm.Stopping:
			s.noteFailure(p.ID, inst, now)
			s.end(ctx, term, inst, func(t *farm.PoolStats) { t.Failed++ })
		case isKnown && inst.Template != state.ref || inst.GroupID != p.GroupID || s.isMisplaced(inst) ||
			exists && node.State == farm.NodeActive && !node.AcceptsStarts():
			s.end(ctx, term, inst, func(t *farm.PoolStats) { t.Replaced++ })
		case !inst.NodeLostAt.IsZero() || exists && isAway(node, now): // it counts again when its node is back
		case p.MaxAge > 0 && inst.IsReady() && now.Sub(inst.Started) >= time.Duration(p.MaxAge)*time.Second:
			aged = append(aged, inst)
		default:
			good = append(good, inst)
		}
		if inst.IsBooting() {
			booting++
		}
	}
	// One old standby at a time is replaced, so that the pool lacks one at most; the others stay until another one is
	// ready, or for some time where none has become that.
	if len(aged) > 0 && booting == 0 && now.Sub(state.agedAt) >= agedRetry {
		if s.end(ctx, term, aged[0], func(t *farm.PoolStats) { t.Replaced++ }) {
			s.setState(p.ID, func(to *poolState) { to.agedAt = now })
		}
		aged = aged[1:]
	}
	good = append(good, aged...)
	for len(good) > wanted {
		s.end(ctx, term, good[0], nil)
		good = good[1:]
	}
	if len(good) == wanted || !isKnown || now.Before(state.retryAt) {
		return nil
	}
	list := make([]*farm.Instance, min(wanted-len(good), maxBoots))
	for i := range list {
		list[i] = s.o.NewInstance(p, state.ref)
	}
	return s.boot(ctx, term, p.ID, list)
}

// isAway reports whether a node has taken no starts for longer than an update of its agent takes.
func isAway(node *farm.Node, now time.Time) bool {
	return !node.AcceptsStarts() && now.Sub(node.StateSince) >= awayDelay
}

// isMisplaced reports whether a standby is on a node where it could not be placed any longer, whatever time passes.
func (s *Pools) isMisplaced(inst *farm.Instance) bool {
	f := s.o.Placer.Exclusion(inst, inst.NodeID)
	return f != "" && !f.IsTemporary()
}

// boot creates standbys of a pool, as many as nodes have free slots for.
func (s *Pools) boot(ctx context.Context, term *record.Term, pool string, list []*farm.Instance) error {
	release := s.o.AssignMACs(list)
	defer release()
	booted, err := s.o.Placer.BootAhead(ctx, term, list)
	problem := ""
	if booted < len(list) {
		problem = "no node has a free slot for another standby"
	}
	s.setState(pool, func(to *poolState) {
		to.problem = problem
		if booted == 0 {
			to.retryAt = s.db.Now().Add(lookInterval)
		}
	})
	return err
}

// noteFailure delays the next boot of a pool whose standbys fail.
func (s *Pools) noteFailure(pool string, inst *farm.Instance, now time.Time) {
	s.setState(pool, func(to *poolState) {
		to.retryAt = now.Add(min(firstRetry<<min(to.failures, 10), lastRetry))
		to.failures++
		to.problem = "a standby failed: " + farm.Clip(inst.Message, 200)
	})
}

// end requests the end of a standby, unless a start claims it first.
func (s *Pools) end(ctx context.Context, term *record.Term, inst *farm.Instance, count func(*farm.PoolStats)) bool {
	now, rev, ok := s.db.Tables.Instances.Get(inst.ID)
	if !ok || !now.IsStandby() {
		return false
	}
	next := now.AfterTerminate(s.db.Now())
	if next == now {
		return false
	}
	err := term.Commit(ctx, store.Put(s.db.Tables.Instances, inst.ID, next, store.IfRev(rev)))
	if err != nil {
		if !errors.Is(err, store.ErrConflict) && ctx.Err() == nil {
			s.db.Log.WarnContext(ctx, "ending a standby failed; retrying", "instance_id", inst.ID, "error", err)
		}
		return false
	}
	if count != nil {
		s.add(inst.Pool, count)
	}
	return true
}

// endWithoutPool ends the standbys of pools that were deleted.
func (s *Pools) endWithoutPool(ctx context.Context, term *record.Term) error {
	for _, inst := range s.allStandbys() {
		if _, _, exists := s.db.Tables.Pools.Get(inst.Pool); !exists {
			s.end(ctx, term, inst, nil)
		}
	}
	return nil
}

// allStandbys returns every standby.
func (s *Pools) allStandbys() []*farm.Instance {
	var list []*farm.Instance
	for _, inst := range s.db.Tables.Instances.Where(record.ByStandby, record.AllCallers) {
		list = append(list, inst)
	}
	return list
}

// yield ends standbys for requests that lack nothing but capacity which standbys use: on one node, as few as suffice,
// and none where they would not suffice. Those that still boot end first, then the oldest.
func (s *Pools) yield(ctx context.Context, term *record.Term) {
	list := s.allStandbys()
	rank := func(i *farm.Instance) int {
		switch {
		case i.State == farm.Terminating:
			return 0
		case !i.IsReady():
			return 1
		}
		return 2
	}
	slices.SortFunc(list, func(a, b *farm.Instance) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	standbys, byNode := map[string]*farm.Instance{}, map[string]sched.Releasable{}
	for _, inst := range list {
		if inst.NodeID == "" || inst.State == farm.Terminated {
			continue
		}
		standbys[inst.ID] = inst
		v := byNode[inst.NodeID]
		v.IDs = append(v.IDs, inst.ID)
		if inst.State == farm.Terminating {
			v.Ending++
		}
		byNode[inst.NodeID] = v
	}
	for _, ids := range s.o.Placer.Releases(byNode, crowdedLimit) {
		for _, id := range ids {
			s.end(ctx, term, standbys[id], func(t *farm.PoolStats) { t.Yielded++ })
		}
	}
}
