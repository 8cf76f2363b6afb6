package controller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// cacheJobDue is what a node is to be sent of a cache job, and the last status it reported. Nothing
// of it is stored: it follows from the records, and a node whose agent is new is sent the job
// again.
type cacheJobDue struct {
	kind     api.CacheJobKind // that it is to be sent
	sent     time.Time        // zero: not yet
	taken    bool             // it has reported a status since
	progress float64
}

// cacheJobKinds maps the kind of a record to the kind that the node is sent.
var cacheJobKinds = map[farm.CacheJobKind]api.CacheJobKind{
	farm.CacheJobDistribute: api.CacheJobPull, farm.CacheJobRemove: api.CacheJobRemove,
}

// followCacheJob applies a change of a cache job to the sessions of its nodes.
func (l *nodeSessions) followCacheJob(event store.Event) {
	if e, ok := event.New.(*farm.CacheJob); ok {
		l.wantCacheJob(e)
	} else if e, ok := event.Old.(*farm.CacheJob); ok {
		l.dropCacheJob(e)
	}
}

// wantCacheJob sends a cache job in its present state to its nodes.
func (l *nodeSessions) wantCacheJob(e *farm.CacheJob) {
	if !e.Open() {
		l.dropCacheJob(e)
		return
	}
	for _, node := range e.Nodes {
		if !e.Addresses(node) {
			continue
		}
		if s := l.session(node); s != nil {
			o, _, _ := l.c.tables.CacheJobResults.Get(record.CacheJobResultID(e.ID, node))
			s.wantCacheJob(e, o)
		}
	}
}

func (l *nodeSessions) dropCacheJob(e *farm.CacheJob) {
	for _, node := range e.Nodes {
		if s := l.find(node); s != nil {
			s.dropCacheJob(e.ID, false)
		}
	}
}

// followOutcome records that a node is done with a cache job.
func (l *nodeSessions) followOutcome(event store.Event) {
	o, ok := event.New.(*farm.CacheJobResult)
	id, node := record.SplitCacheJobResultID(event.ID)
	e, _, known := l.c.tables.CacheJobs.Get(id)
	if s := l.find(node); ok && known && e.Open() && s != nil {
		s.wantCacheJob(e, o)
	}
}

// wantCacheJob sends a cache job to the node, unless it has a result: then nothing is left to do.
func (s *session) wantCacheJob(e *farm.CacheJob, o *farm.CacheJobResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o != nil {
		s.endCacheJobLocked(e.ID)
		return
	}
	if d, known := s.cacheJobs[e.ID]; !known || d.kind == api.CacheJobDrop {
		d.kind = cacheJobKinds[e.Kind]
		s.setCacheJobLocked(e.ID, d)
		s.ring()
	}
}

// endCacheJobLocked removes a cache job; with the last pull the node frees its rollout slot.
func (s *session) endCacheJobLocked(id string) {
	d := s.cacheJobs[id]
	delete(s.cacheJobs, id)
	if d.kind == api.CacheJobPull {
		s.pulledLocked()
	}
}

func (s *session) pulledLocked() {
	for _, d := range s.cacheJobs {
		if d.kind == api.CacheJobPull {
			return
		}
	}
	s.waves.leave(s)
}

func (s *session) setCacheJobLocked(id string, d cacheJobDue) {
	if s.cacheJobs == nil {
		s.cacheJobs = map[string]cacheJobDue{}
	}
	s.cacheJobs[id] = d
}

// maxCacheJobsKept bounds the cache jobs that a node has to drop because they do not exist.
const maxCacheJobsKept = 1000

// dropCacheJob makes the node forget a cache job that is over. One that it was never sent it need not
// forget, unless it has reported a status of it.
func (s *session) dropCacheJob(id string, spoken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, known := s.cacheJobs[id]
	switch {
	case d.kind == api.CacheJobDrop:
	case !known && len(s.cacheJobs) >= maxCacheJobsKept:
	case spoken, known && !d.sent.IsZero():
		s.setCacheJobLocked(id, cacheJobDue{kind: api.CacheJobDrop})
		if d.kind == api.CacheJobPull {
			s.pulledLocked()
		}
		s.ring()
	default:
		s.endCacheJobLocked(id)
	}
}

// cacheJobDropped records that the node has forgotten a cache job. A job that is still open is sent
// again.
func (s *session) cacheJobDropped(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, known := s.cacheJobs[id]
	switch {
	case !known:
	case d.kind == api.CacheJobDrop:
		delete(s.cacheJobs, id)
	case d.taken:
		d.taken, d.sent = false, time.Time{}
		s.cacheJobs[id] = d
		s.ring()
	}
}

// cacheJobTold applies the node's status of an open cache job.
func (s *session) cacheJobTold(status api.CacheJobStatus, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, known := s.cacheJobs[status.ID]
	if !known || d.kind == api.CacheJobDrop {
		return
	}
	d.taken, d.progress = true, max(d.progress, min(status.Progress, 1))
	s.cacheJobs[status.ID] = d
	if d.kind == api.CacheJobPull {
		s.waves.moved(s.node, now)
	}
}

// offerCacheJobsLocked sends everything again to a new agent.
func (s *session) offerCacheJobsLocked() {
	for id, d := range s.cacheJobs {
		d.taken, d.sent = false, time.Time{}
		s.cacheJobs[id] = d
	}
}

// maxCacheJobsSent bounds one response; the rest comes with the next poll.
const maxCacheJobsSent = 100

// takeCacheJobs marks the cache jobs that are to be sent now and returns them by their ids, with the
// time at which the next one is due again. Pulls are sent when the node has a rollout slot.
func (s *session) takeCacheJobs(now time.Time, resend time.Duration) (list map[string]cacheJobDue, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.cacheJobs) == 0 {
		return nil, next
	}
	turn := sync.OnceValue(func() bool { return s.waves.enter(s, now) })
	for id, d := range s.cacheJobs {
		if d.taken {
			continue
		}
		if again := d.sent.Add(resend); !d.sent.IsZero() && now.Before(again) {
			next = sooner(next, again)
			continue
		}
		if len(list) == maxCacheJobsSent {
			return list, now
		}
		if d.kind == api.CacheJobPull && !turn() {
			continue
		}
		if list == nil {
			list = map[string]cacheJobDue{}
		}
		d.sent = now
		s.cacheJobs[id], list[id] = d, d
	}
	return list, next
}

// sooner returns the earlier of two times; a zero one means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// cacheJobsFor returns cache jobs as their records are now.
func (c *Controller) cacheJobsFor(list map[string]cacheJobDue) []api.CacheJob {
	var out []api.CacheJob
	for id, d := range list {
		if d.kind == api.CacheJobDrop {
			out = append(out, api.CacheJob{ID: id, Kind: d.kind})
			continue
		}
		e, _, ok := c.tables.CacheJobs.Get(id)
		if !ok || !e.Open() {
			continue // it has ended a moment ago
		}
		t := e.Template
		out = append(out, api.CacheJob{
			ID: id, Kind: d.kind, TemplateID: t.ID, TemplateName: t.Name, Tag: t.Tag, Version: t.Version,
			ContentID: t.ContentID, Registry: e.Registry,
		})
	}
	return out
}

// cacheJobProgress returns the progress of a node with a cache job, as it last reported here.
func (l *nodeSessions) cacheJobProgress(node, id string) float64 {
	s := l.find(node)
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cacheJobs[id].progress
}

// applyCacheJobs applies the cache job statuses of a node: progress stays in memory, results are
// written, as many at a time as fit into one transaction.
func (c *Controller) applyCacheJobs(ctx context.Context, s *session, statuses []api.CacheJobStatus) error {
	last := map[string]bool{}
	statuses = slices.Clone(statuses)
	slices.Reverse(statuses) // the last status of a cache job is complete
	statuses = slices.DeleteFunc(statuses, func(t api.CacheJobStatus) bool {
		again := last[t.ID] || !record.ValidID(t.ID)
		last[t.ID] = true
		return again
	})
	statuses, err := c.knownCacheJobs(ctx, s, statuses)
	if err != nil {
		return err
	}
	for len(statuses) > 0 {
		done, err := c.applySomeCacheJobs(ctx, s, statuses)
		if err != nil {
			return err
		}
		statuses = statuses[done:]
	}
	return nil
}

// knownCacheJobs leaves out the statuses of cache jobs that have no record: the node has to
// forget them. However many there are, they cost one read of the store.
func (c *Controller) knownCacheJobs(
	ctx context.Context, s *session, statuses []api.CacheJobStatus,
) ([]api.CacheJobStatus, error) {
	missing := func(t api.CacheJobStatus) bool {
		_, _, ok := c.tables.CacheJobs.Get(t.ID)
		return !ok && t.Stage != api.CacheJobDropped
	}
	if !slices.ContainsFunc(statuses, missing) {
		return statuses, nil
	}
	if err := c.db.UpToDate(ctx); err != nil { // another replica may have created one a moment ago
		return nil, farm.Unavailable(err, "The store cannot be reached; try again")
	}
	return slices.DeleteFunc(statuses, func(t api.CacheJobStatus) bool {
		if !missing(t) {
			return false
		}
		s.dropCacheJob(t.ID, true)
		return true
	}), nil
}

func (c *Controller) applySomeCacheJobs(
	ctx context.Context, s *session, statuses []api.CacheJobStatus,
) (done int, err error) {
	for attempt := range statusAttempts {
		var b record.Txn
		for done = 0; done < len(statuses); done++ {
			changes, err := c.cacheJobChanges(ctx, s, statuses[done], attempt > 0)
			if err != nil {
				return done, err
			}
			if len(changes) > 0 && !b.Add(changes...) {
				break
			}
		}
		if len(b.Changes) == 0 {
			return done, nil
		}
		if err = c.store.Commit(ctx, b.Changes...); err == nil {
			c.recordResults(b.Changes)
		}
		if !errors.Is(err, store.ErrConflict) {
			return done, err
		}
	}
	return 0, store.ErrConflict
}

// cacheJobChanges applies one status and returns the changes of the records. With fresh, it reads
// them from the store itself. A result counts only while its cache job is open.
func (c *Controller) cacheJobChanges(
	ctx context.Context, s *session, status api.CacheJobStatus, fresh bool,
) ([]store.Change, error) {
	if status.Stage == api.CacheJobDropped {
		s.cacheJobDropped(status.ID)
		return nil, nil
	}
	e, rev, _ := c.tables.CacheJobs.Get(status.ID)
	if fresh {
		var err error
		if e, rev, err = c.tables.CacheJobs.GetLinearizable(ctx, status.ID); err != nil {
			return nil, err
		}
	}
	if e == nil || !e.Open() || !e.Addresses(s.node) {
		s.dropCacheJob(status.ID, true)
		return nil, nil
	}
	s.cacheJobTold(status, c.now())
	if status.Stage != api.CacheJobDone && status.Stage != api.CacheJobFailed {
		return nil, nil
	}
	id := record.CacheJobResultID(e.ID, s.node)
	_, _, known := c.tables.CacheJobResults.Get(id)
	if !known && fresh {
		o, _, err := c.tables.CacheJobResults.GetLinearizable(ctx, id)
		if err != nil {
			return nil, err
		}
		known = o != nil
	}
	if known {
		return nil, nil
	}
	return []store.Change{
		store.Check(c.tables.CacheJobs, e.ID, store.IfRev(rev)),
		store.Put(c.tables.CacheJobResults, id, outcomeOf(status, c.now()), store.IfAbsent),
	}, nil
}

// maxCacheJobError bounds the stored error of a node, since many nodes may fail.
const maxCacheJobError = 512

// outcomeOf creates the record of a final status.
func outcomeOf(status api.CacheJobStatus, now time.Time) *farm.CacheJobResult {
	o := &farm.CacheJobResult{
		Done: status.Stage == api.CacheJobDone, Progress: max(0, min(status.Progress, 1)), At: now,
		Removed: max(status.Removed, 0), Kept: max(status.Kept, 0),
	}
	if o.Done {
		o.Progress = 1
		return o
	}
	o.Error = firstOf(farm.Clip(status.Message, maxCacheJobError), "The node does not say why")
	return o
}
