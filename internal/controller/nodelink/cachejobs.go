package nodelink

import (
	"cmp"
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

// pendingCacheJob is what a node is to be sent of a cache job, and the last status it reported. Nothing
// of it is stored: it follows from the records, and a node whose agent is new is sent the job
// again.
type pendingCacheJob struct {
	kind     api.CacheJobKind // that it is to be sent
	sent     time.Time        // zero: not yet
	reported bool             // it has reported a status since
	progress float64
}

// cacheJobKinds maps the kind of a record to the kind that the node is sent.
var cacheJobKinds = map[farm.CacheJobKind]api.CacheJobKind{
	farm.CacheJobDistribute: api.CacheJobPull, farm.CacheJobRemove: api.CacheJobRemove,
}

// followCacheJob applies a change of a cache job to the sessions of its nodes.
func (n *Sessions) followCacheJob(event store.Event) {
	if e, ok := event.New.(*farm.CacheJob); ok {
		n.setCacheJob(e)
	} else if e, ok := event.Old.(*farm.CacheJob); ok {
		n.dropCacheJob(e)
	}
}

// setCacheJob sends a cache job in its present state to its nodes.
func (n *Sessions) setCacheJob(e *farm.CacheJob) {
	if !e.IsOpen() {
		n.dropCacheJob(e)
		return
	}
	for _, node := range e.Nodes {
		if !e.HasWorkFor(node) {
			continue
		}
		if s := n.session(node); s != nil {
			o, _, _ := n.db.Tables.CacheJobResults.Get(record.CacheJobResultID(e.ID, node))
			s.setCacheJob(e, o)
		}
	}
}

func (n *Sessions) dropCacheJob(e *farm.CacheJob) {
	for _, node := range e.Nodes {
		if s := n.find(node); s != nil {
			s.dropCacheJob(e.ID, false)
		}
	}
}

// followCacheJobResult records that a node is done with a cache job.
func (n *Sessions) followCacheJobResult(event store.Event) {
	o, ok := event.New.(*farm.CacheJobResult)
	id, node := record.SplitCacheJobResultID(event.ID)
	e, _, known := n.db.Tables.CacheJobs.Get(id)
	if s := n.find(node); ok && known && e.IsOpen() && s != nil {
		s.setCacheJob(e, o)
	}
}

// setCacheJob sends a cache job to the node, unless it has a result: then nothing is left to do.
func (s *session) setCacheJob(e *farm.CacheJob, o *farm.CacheJobResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o != nil {
		s.endCacheJobLocked(e.ID)
		return
	}
	if d, known := s.cacheJobs[e.ID]; !known || d.kind == api.CacheJobDrop {
		d.kind = cacheJobKinds[e.Kind]
		s.setCacheJobLocked(e.ID, d)
		s.signal()
	}
}

// endCacheJobLocked removes a cache job; with the last pull the node frees its rollout slot.
func (s *session) endCacheJobLocked(id string) {
	d := s.cacheJobs[id]
	delete(s.cacheJobs, id)
	if d.kind == api.CacheJobPull {
		s.endPullLocked()
	}
}

func (s *session) endPullLocked() {
	for _, d := range s.cacheJobs {
		if d.kind == api.CacheJobPull {
			return
		}
	}
	s.rollout.release(s)
}

func (s *session) setCacheJobLocked(id string, d pendingCacheJob) {
	if s.cacheJobs == nil {
		s.cacheJobs = map[string]pendingCacheJob{}
	}
	s.cacheJobs[id] = d
}

// maxCacheJobs bounds the cache jobs that a node has to drop because they do not exist.
const maxCacheJobs = 1000

// dropCacheJob makes the node forget a cache job that is over. One that it was never sent it need not
// forget, unless it has reported a status of it.
func (s *session) dropCacheJob(id string, hasStatus bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, known := s.cacheJobs[id]
	switch {
	case d.kind == api.CacheJobDrop:
	case !known && len(s.cacheJobs) >= maxCacheJobs:
	case hasStatus, known && !d.sent.IsZero():
		s.setCacheJobLocked(id, pendingCacheJob{kind: api.CacheJobDrop})
		if d.kind == api.CacheJobPull {
			s.endPullLocked()
		}
		s.signal()
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
	case d.reported:
		d.reported, d.sent = false, time.Time{}
		s.cacheJobs[id] = d
		s.signal()
	}
}

// setCacheJobStatus applies the node's status of an open cache job.
func (s *session) setCacheJobStatus(status api.CacheJobStatus, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, known := s.cacheJobs[status.ID]
	if !known || d.kind == api.CacheJobDrop {
		return
	}
	d.reported, d.progress = true, max(d.progress, min(status.Progress, 1))
	s.cacheJobs[status.ID] = d
	if d.kind == api.CacheJobPull {
		s.rollout.progress(s.node, now)
	}
}

// resendCacheJobsLocked sends everything again to a new agent.
func (s *session) resendCacheJobsLocked() {
	for id, d := range s.cacheJobs {
		d.reported, d.sent = false, time.Time{}
		s.cacheJobs[id] = d
	}
}

// maxAttempts is how often a transaction that lost a race is tried.
const maxAttempts = 20

// maxCacheJobsSent bounds one response; the rest comes with the next poll.
const maxCacheJobsSent = 100

// takeCacheJobs marks the cache jobs that are to be sent now and returns them by their ids, with the
// time at which the next one is due again. Pulls are sent when the node has a rollout slot.
func (s *session) takeCacheJobs(now time.Time, resend time.Duration) (list map[string]pendingCacheJob, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.cacheJobs) == 0 {
		return nil, next
	}
	turn := sync.OnceValue(func() bool { return s.rollout.acquire(s, now) })
	for id, d := range s.cacheJobs {
		if d.reported {
			continue
		}
		if again := d.sent.Add(resend); !d.sent.IsZero() && now.Before(again) {
			next = earlier(next, again)
			continue
		}
		if len(list) == maxCacheJobsSent {
			return list, now
		}
		if d.kind == api.CacheJobPull && !turn() {
			continue
		}
		if list == nil {
			list = map[string]pendingCacheJob{}
		}
		d.sent = now
		s.cacheJobs[id], list[id] = d, d
	}
	return list, next
}

// earlier returns the earlier of two times; a zero one means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// cacheJobsFor returns cache jobs as their records are now.
func (l *Link) cacheJobsFor(list map[string]pendingCacheJob) []api.CacheJob {
	var out []api.CacheJob
	for id, d := range list {
		if d.kind == api.CacheJobDrop {
			out = append(out, api.CacheJob{ID: id, Kind: d.kind})
			continue
		}
		e, _, ok := l.db.Tables.CacheJobs.Get(id)
		if !ok || !e.IsOpen() {
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

// CacheJobProgress returns the progress of a node with a cache job. While a node works on a job, its
// progress is in memory at the replica that the node polls; the others know it from that replica's
// digests.
func (l *Link) CacheJobProgress(node, id string) float64 {
	return max(l.Sessions.cacheJobProgress(node, id), l.Peers.cacheJobProgress(node, id))
}

// cacheJobProgress returns the progress of a node with a cache job, as it last reported here.
func (n *Sessions) cacheJobProgress(node, id string) float64 {
	s := n.find(node)
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cacheJobs[id].progress
}

// applyCacheJobs applies the cache job statuses of a node: progress stays in memory, results are
// written, as many at a time as fit into one transaction.
func (l *Link) applyCacheJobs(ctx context.Context, s *session, statuses []api.CacheJobStatus) error {
	last := map[string]bool{}
	statuses = slices.Clone(statuses)
	slices.Reverse(statuses) // the last status of a cache job is complete
	statuses = slices.DeleteFunc(statuses, func(t api.CacheJobStatus) bool {
		again := last[t.ID] || !record.ValidID(t.ID)
		last[t.ID] = true
		return again
	})
	statuses, err := l.knownCacheJobs(ctx, s, statuses)
	if err != nil {
		return err
	}
	for len(statuses) > 0 {
		done, err := l.applySomeCacheJobs(ctx, s, statuses)
		if err != nil {
			return err
		}
		statuses = statuses[done:]
	}
	return nil
}

// knownCacheJobs leaves out the statuses of cache jobs that have no record: the node has to
// forget them. However many there are, they cost one read of the store.
func (l *Link) knownCacheJobs(
	ctx context.Context, s *session, statuses []api.CacheJobStatus,
) ([]api.CacheJobStatus, error) {
	missing := func(t api.CacheJobStatus) bool {
		_, _, ok := l.db.Tables.CacheJobs.Get(t.ID)
		return !ok && t.Stage != api.CacheJobDropped
	}
	if !slices.ContainsFunc(statuses, missing) {
		return statuses, nil
	}
	if err := l.db.UpToDate(ctx); err != nil { // another replica may have created one a moment ago
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

func (l *Link) applySomeCacheJobs(
	ctx context.Context, s *session, statuses []api.CacheJobStatus,
) (done int, err error) {
	for attempt := range maxAttempts {
		var b record.Txn
		for done = 0; done < len(statuses); done++ {
			changes, err := l.cacheJobChanges(ctx, s, statuses[done], attempt > 0)
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
		if err = l.db.Store.Commit(ctx, b.Changes...); err == nil {
			l.opts.CountResults(b.Changes)
		}
		if !errors.Is(err, store.ErrConflict) {
			return done, err
		}
	}
	return 0, store.ErrConflict
}

// cacheJobChanges applies one status and returns the changes of the records. With fresh, it reads
// them from the store itself. A result counts only while its cache job is open.
func (l *Link) cacheJobChanges(
	ctx context.Context, s *session, status api.CacheJobStatus, fresh bool,
) ([]store.Change, error) {
	if status.Stage == api.CacheJobDropped {
		s.cacheJobDropped(status.ID)
		return nil, nil
	}
	e, rev, _ := l.db.Tables.CacheJobs.Get(status.ID)
	if fresh {
		var err error
		if e, rev, err = l.db.Tables.CacheJobs.GetLinearizable(ctx, status.ID); err != nil {
			return nil, err
		}
	}
	if e == nil || !e.IsOpen() || !e.HasWorkFor(s.node) {
		s.dropCacheJob(status.ID, true)
		return nil, nil
	}
	s.setCacheJobStatus(status, l.db.Now())
	if status.Stage != api.CacheJobDone && status.Stage != api.CacheJobFailed {
		return nil, nil
	}
	id := record.CacheJobResultID(e.ID, s.node)
	_, _, known := l.db.Tables.CacheJobResults.Get(id)
	if !known && fresh {
		o, _, err := l.db.Tables.CacheJobResults.GetLinearizable(ctx, id)
		if err != nil {
			return nil, err
		}
		known = o != nil
	}
	if known {
		return nil, nil
	}
	return []store.Change{
		store.Check(l.db.Tables.CacheJobs, e.ID, store.IfRev(rev)),
		store.Put(l.db.Tables.CacheJobResults, id, resultOf(status, l.db.Now()), store.IfAbsent),
	}, nil
}

// maxCacheJobError bounds the stored error of a node, since many nodes may fail.
const maxCacheJobError = 512

// resultOf creates the record of a final status.
func resultOf(status api.CacheJobStatus, now time.Time) *farm.CacheJobResult {
	o := &farm.CacheJobResult{
		Done: status.Stage == api.CacheJobDone, Progress: max(0, min(status.Progress, 1)), EndedAt: now,
		RemovedVersions: max(status.Removed, 0), KeptVersions: max(status.Kept, 0),
	}
	if o.Done {
		o.Progress = 1
		return o
	}
	o.Error = cmp.Or(farm.Clip(status.Message, maxCacheJobError), "The node does not say why")
	return o
}
