// Package cachejob carries out what a controller requests for a node's cached templates independent
// of instances: to prefetch a version, and to remove a template.
//
// It is not the cache and does not pull without a cache job, and it knows neither instances nor the
// node link: its caller passes cache jobs in and statuses out.
//
// Invariant: a version is pinned for a cache job only while it is being pulled: afterwards it is a
// cached version like any other.
package cachejob

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
)

const (
	maxCacheJobs = 1000 // of a node at a time; more wait at the controller
	maxStatuses  = 200  // in one report
	atOnce       = 2    // concurrent pulls for cache jobs; one of them may wait for a registry that is unavailable
)

// Templates is the cache of versions.
type Templates interface {
	Has(contentID string) bool
	Fetch(ctx context.Context, ref cache.Ref, progress func(float64)) error
	Pin(contentID, holder string)
	Unpin(contentID, holder string)
	List() []api.NodeTemplate
	Remove(contentID string) error
}

var _ Templates = (*cache.Cache)(nil)

// Options configure a Runner. Templates, Registry, Changed and Logger are required.
type Options struct {
	Node      string // ID of this node: cache jobs of another identity are ignored
	Templates Templates
	File      string                      // unfinished cache jobs are stored here; "": they do not outlive the agent
	Registry  func(address string) string // address to pull from for the address in a cache job
	Changed   func()                      // called when a status is to be reported; must not block
	Logger    *slog.Logger
}

// Runner carries out cache jobs. Create it with New, then call Begin once. It may be used from many
// goroutines.
type Runner struct {
	o       Options
	running sync.WaitGroup // workers
	turns   chan struct{}  // has a value for each running pull
	saving  sync.Mutex     // held while the file is written; taken before mu

	mu         sync.Mutex          // guards the fields below; never held while Templates is called
	entries    map[string]*job     // by the cache job's ID
	dropped    map[string]struct{} // IDs of dropped cache jobs, to be reported
	unreported map[string]struct{} // IDs of entries and dropped cache jobs to be reported
	starts     int                 // instances that are pulling
	idle       chan struct{}       // closed while no instance pulls
	hurry      chan struct{}       // closed while an instance pulls
}

// job is one cache job. mu of its Runner guards all fields but order.
type job struct {
	order   api.CacheJob
	stop    context.CancelFunc // ends its worker
	stage   api.CacheJobStage
	done    float64 // 0..1, of the pull
	message string
	removed int
	kept    int
	toldAt  time.Time // when progress was last marked for a report
	toldOf  float64
}

// New returns a runner. It does not touch anything yet.
func New(o Options) *Runner {
	r := &Runner{
		o: o, turns: make(chan struct{}, atOnce),
		entries: map[string]*job{}, dropped: map[string]struct{}{}, unreported: map[string]struct{}{},
		idle: make(chan struct{}), hurry: make(chan struct{}),
	}
	close(r.idle)
	return r
}

// Begin resumes the cache jobs of an earlier agent. Workers end with ctx; Wait waits for them.
func (r *Runner) Begin(ctx context.Context) {
	for _, order := range r.load() {
		r.acceptOne(ctx, order)
	}
}

// Wait returns when no worker runs any longer.
func (r *Runner) Wait() { r.running.Wait() }

// Accept accepts cache jobs. The status of a repeated one is reported again. Workers end with ctx.
func (r *Runner) Accept(ctx context.Context, orders []api.CacheJob) {
	if len(orders) == 0 {
		return
	}
	for _, order := range orders {
		r.acceptOne(ctx, order)
	}
	r.save()
}

func (r *Runner) acceptOne(ctx context.Context, order api.CacheJob) {
	r.mu.Lock()
	_, known := r.entries[order.ID]
	full := len(r.entries) >= maxCacheJobs
	r.mu.Unlock()
	switch {
	case order.ID == "":
	case order.Kind == api.CacheJobDrop:
		r.drop(order.ID)
	case known:
		r.markChanged(order.ID)
	case full:
		r.o.Logger.Warn("cache job rejected: queue full", "cache_job", order.ID, "most", maxCacheJobs)
	case order.Kind == api.CacheJobPull:
		r.o.Logger.Info("distribution accepted", "cache_job", order.ID, "template", order.TemplateName, "tag",
			order.Tag)
		r.o.Templates.Pin(order.ContentID, pinName(order.ID))
		r.startWorker(ctx, order, r.pull)
	case order.Kind == api.CacheJobRemove:
		r.startWorker(ctx, order, r.remove)
	default:
		r.o.Logger.Warn("cache job of an unknown kind ignored", "cache_job", order.ID, "kind", string(order.Kind))
	}
}

// pinName returns the name under which a version is pinned for a cache job. It is stored, so its prefix stays.
func pinName(id string) string { return "errand:" + id }

// startWorker starts the worker of a cache job.
func (r *Runner) startWorker(ctx context.Context, order api.CacheJob, work func(context.Context, *job)) {
	e := &job{order: order, stage: api.CacheJobAccepted}
	r.mu.Lock()
	ctx, cancel := context.WithCancel(ctx)
	e.stop = cancel
	r.entries[order.ID] = e
	r.mu.Unlock()
	r.markChanged(order.ID)
	r.running.Go(func() {
		defer cancel()
		work(ctx, e)
	})
}

// drop removes a cache job and releases what was pinned for it.
func (r *Runner) drop(id string) {
	r.mu.Lock()
	e := r.entries[id]
	delete(r.entries, id)
	if len(r.dropped) >= maxCacheJobs {
		clear(r.dropped) // the controller asks again
	}
	r.dropped[id] = struct{}{}
	r.mu.Unlock()
	if e != nil {
		e.stop()
		r.o.Templates.Unpin(e.order.ContentID, pinName(id))
		r.o.Logger.Info("cache job canceled", "cache_job", id)
	}
	r.markChanged(id)
}

// DropAll removes all cache jobs without a report: this node has left its cloud.
func (r *Runner) DropAll() {
	r.mu.Lock()
	var ids []string
	for id := range r.entries {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	for _, id := range ids {
		r.drop(id)
	}
	r.mu.Lock()
	clear(r.dropped)
	clear(r.unreported)
	r.mu.Unlock()
	r.save()
}

// PauseForInstance makes the pulls for cache jobs wait until the returned function is called: an
// instance is pulling, which has priority.
func (r *Runner) PauseForInstance() (goOn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.starts++; r.starts == 1 {
		r.idle = make(chan struct{})
		close(r.hurry)
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.starts--; r.starts == 0 {
			close(r.idle)
			r.hurry = make(chan struct{})
		}
	}
}

// markChanged marks a cache job to be reported.
func (r *Runner) markChanged(id string) {
	r.mu.Lock()
	r.unreported[id] = struct{}{}
	r.mu.Unlock()
	r.o.Changed()
}

// ResendStatuses marks everything to be reported again.
func (r *Runner) ResendStatuses() {
	r.mu.Lock()
	for id := range r.entries {
		r.unreported[id] = struct{}{}
	}
	some := len(r.unreported) > 0
	r.mu.Unlock()
	if some {
		r.o.Changed()
	}
}

// Statuses returns the statuses to report now, sorted; what does not fit is returned by the next
// call. Each is returned once, unless it changes or Again is called.
func (r *Runner) Statuses() []api.CacheJobStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []api.CacheJobStatus
	for id := range r.unreported {
		if len(list) == maxStatuses {
			break
		}
		delete(r.unreported, id)
		if e := r.entries[id]; e != nil {
			list = append(list, e.status())
		} else if _, is := r.dropped[id]; is {
			list = append(list, api.CacheJobStatus{ID: id, Stage: api.CacheJobDropped})
		}
	}
	slices.SortFunc(list, func(a, b api.CacheJobStatus) int { return strings.Compare(a.ID, b.ID) })
	return list
}

func (e *job) status() api.CacheJobStatus {
	return api.CacheJobStatus{
		ID: e.order.ID, Stage: e.stage, Progress: e.done, Message: e.message, Removed: e.removed,
		Kept: e.kept,
	}
}

// MarkUnsent marks statuses that did not arrive to be reported again.
func (r *Runner) MarkUnsent(lost []api.CacheJobStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range lost {
		r.unreported[s.ID] = struct{}{}
	}
}

// MarkReceived records what the controller received. Cache jobs that are done or failed are removed then.
func (r *Runner) MarkReceived(sent []api.CacheJobStatus) {
	over := false
	r.mu.Lock()
	for _, s := range sent {
		if s.Stage == api.CacheJobDropped {
			delete(r.dropped, s.ID)
		}
		e := r.entries[s.ID]
		if e == nil || e.stage != s.Stage {
			continue
		}
		if e.over() {
			delete(r.entries, s.ID)
			over = true
		}
	}
	r.mu.Unlock()
	if over {
		r.save()
	}
}

// over reports whether a cache job is finished.
func (e *job) over() bool { return e.stage == api.CacheJobDone || e.stage == api.CacheJobFailed }

// end finishes a cache job with any result.
func (r *Runner) end(e *job, edit func(*job)) {
	r.o.Templates.Unpin(e.order.ContentID, pinName(e.order.ID))
	r.mu.Lock()
	edit(e)
	here := r.entries[e.order.ID] == e
	r.mu.Unlock()
	if !here { // dropped in the meantime
		return
	}
	r.save()
	r.markChanged(e.order.ID)
}

// fail ends a cache job that cannot be carried out.
func (r *Runner) fail(e *job, cause error) {
	r.o.Logger.Warn("distribution failed", "cache_job", e.order.ID, "template", e.order.TemplateName, "tag",
		e.order.Tag, "error", cause)
	r.end(e, func(e *job) { e.stage, e.message = api.CacheJobFailed, cause.Error() })
}

var errYield = errors.New("paused for the pull of an instance")
