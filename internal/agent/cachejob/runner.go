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
	maxPulls     = 2    // concurrent pulls for cache jobs; one of them may wait for a registry that is unavailable
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
	NodeID    string // ID of this node: cache jobs of another identity are ignored
	Templates Templates
	// unfinished cache jobs are stored here; "": they do not outlive the agent
	StoreFile       string
	RegistryAddress func(address string) string // address to pull from for the address in a cache job
	StatusChanged   func()                      // called when a status is to be reported; must not block
	Logger          *slog.Logger
}

// Runner carries out cache jobs. Create it with New, then call Begin once. It may be used from many
// goroutines.
type Runner struct {
	opts      Options
	workers   sync.WaitGroup // workers
	pullSlots chan struct{}  // has a value for each running pull
	saveMu    sync.Mutex     // held while the file is written; taken before mu

	mu                sync.Mutex          // guards the fields below; never held while Templates is called
	jobs              map[string]*job     // by the cache job's ID
	droppedIDs        map[string]struct{} // IDs of dropped cache jobs, to be reported
	unreported        map[string]struct{} // IDs of entries and dropped cache jobs to be reported
	pullingInstances  int                 // instances that are pulling
	noInstancePulling chan struct{}       // closed while no instance pulls
	instancePulling   chan struct{}       // closed while an instance pulls
}

// job is one cache job. mu of its Runner guards all fields but order.
type job struct {
	order                api.CacheJob
	cancelWorker         context.CancelFunc // ends its worker
	stage                api.CacheJobStage
	pullProgress         float64 // 0..1, of the pull
	message              string
	removedVersions      int
	keptVersions         int
	reportMarkedAt       time.Time // when progress was last marked for a report
	reportMarkedProgress float64
}

// New returns a runner. It does not touch anything yet.
func New(o Options) *Runner {
	r := &Runner{
		opts: o, pullSlots: make(chan struct{}, maxPulls),
		jobs: map[string]*job{}, droppedIDs: map[string]struct{}{}, unreported: map[string]struct{}{},
		noInstancePulling: make(chan struct{}), instancePulling: make(chan struct{}),
	}
	close(r.noInstancePulling)
	return r
}

// Resume resumes the cache jobs of an earlier agent. Workers end with ctx; Wait waits for them.
func (r *Runner) Resume(ctx context.Context) {
	for _, order := range r.loadJobs() {
		r.acceptOrder(ctx, order)
	}
}

// Wait returns when no worker runs any longer.
func (r *Runner) Wait() { r.workers.Wait() }

// Accept accepts cache jobs. The status of a repeated one is reported again. Workers end with ctx.
func (r *Runner) Accept(ctx context.Context, orders []api.CacheJob) {
	if len(orders) == 0 {
		return
	}
	for _, order := range orders {
		r.acceptOrder(ctx, order)
	}
	r.saveJobs()
}

func (r *Runner) acceptOrder(ctx context.Context, order api.CacheJob) {
	r.mu.Lock()
	_, known := r.jobs[order.ID]
	full := len(r.jobs) >= maxCacheJobs
	r.mu.Unlock()
	switch {
	case order.ID == "":
	case order.Kind == api.CacheJobDrop:
		r.dropJob(order.ID)
	case known:
		r.markChanged(order.ID)
	case full:
		r.opts.Logger.Warn("cache job rejected: queue full", "cache_job", order.ID, "most", maxCacheJobs)
	case order.Kind == api.CacheJobPull:
		r.opts.Logger.Info("distribution accepted", "cache_job", order.ID, "template", order.TemplateName, "tag",
			order.Tag)
		r.opts.Templates.Pin(order.ContentID, pinHolder(order.ID))
		r.startWorker(ctx, order, r.pullVersion)
	case order.Kind == api.CacheJobRemove:
		r.startWorker(ctx, order, r.removeVersions)
	default:
		r.opts.Logger.Warn("cache job of an unknown kind ignored", "cache_job", order.ID, "kind", string(order.Kind))
	}
}

// pinHolder returns the name under which a version is pinned for a cache job. It is stored, so its prefix stays.
func pinHolder(id string) string { return "errand:" + id }

// startWorker starts the worker of a cache job.
func (r *Runner) startWorker(ctx context.Context, order api.CacheJob, work func(context.Context, *job)) {
	e := &job{order: order, stage: api.CacheJobAccepted}
	r.mu.Lock()
	ctx, cancel := context.WithCancel(ctx)
	e.cancelWorker = cancel
	r.jobs[order.ID] = e
	r.mu.Unlock()
	r.markChanged(order.ID)
	r.workers.Go(func() {
		defer cancel()
		work(ctx, e)
	})
}

// dropJob removes a cache job and releases what was pinned for it.
func (r *Runner) dropJob(id string) {
	r.mu.Lock()
	e := r.jobs[id]
	delete(r.jobs, id)
	if len(r.droppedIDs) >= maxCacheJobs {
		clear(r.droppedIDs) // the controller asks again
	}
	r.droppedIDs[id] = struct{}{}
	r.mu.Unlock()
	if e != nil {
		e.cancelWorker()
		r.opts.Templates.Unpin(e.order.ContentID, pinHolder(id))
		r.opts.Logger.Info("cache job canceled", "cache_job", id)
	}
	r.markChanged(id)
}

// DropAll removes all cache jobs without a report: this node has left its cloud.
func (r *Runner) DropAll() {
	r.mu.Lock()
	var ids []string
	for id := range r.jobs {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	for _, id := range ids {
		r.dropJob(id)
	}
	r.mu.Lock()
	clear(r.droppedIDs)
	clear(r.unreported)
	r.mu.Unlock()
	r.saveJobs()
}

// PauseForInstance makes the pulls for cache jobs wait until the returned function is called: an
// instance is pulling, which has priority.
func (r *Runner) PauseForInstance() (goOn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pullingInstances++; r.pullingInstances == 1 {
		r.noInstancePulling = make(chan struct{})
		close(r.instancePulling)
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.pullingInstances--; r.pullingInstances == 0 {
			close(r.noInstancePulling)
			r.instancePulling = make(chan struct{})
		}
	}
}

// markChanged marks a cache job to be reported.
func (r *Runner) markChanged(id string) {
	r.mu.Lock()
	r.unreported[id] = struct{}{}
	r.mu.Unlock()
	r.opts.StatusChanged()
}

// ResendStatuses marks everything to be reported again.
func (r *Runner) ResendStatuses() {
	r.mu.Lock()
	for id := range r.jobs {
		r.unreported[id] = struct{}{}
	}
	some := len(r.unreported) > 0
	r.mu.Unlock()
	if some {
		r.opts.StatusChanged()
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
		if e := r.jobs[id]; e != nil {
			list = append(list, e.status())
		} else if _, is := r.droppedIDs[id]; is {
			list = append(list, api.CacheJobStatus{ID: id, Stage: api.CacheJobDropped})
		}
	}
	slices.SortFunc(list, func(a, b api.CacheJobStatus) int { return strings.Compare(a.ID, b.ID) })
	return list
}

func (e *job) status() api.CacheJobStatus {
	return api.CacheJobStatus{
		ID: e.order.ID, Stage: e.stage, Progress: e.pullProgress, Message: e.message, Removed: e.removedVersions,
		Kept: e.keptVersions,
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
			delete(r.droppedIDs, s.ID)
		}
		e := r.jobs[s.ID]
		if e == nil || e.stage != s.Stage {
			continue
		}
		if e.isFinished() {
			delete(r.jobs, s.ID)
			over = true
		}
	}
	r.mu.Unlock()
	if over {
		r.saveJobs()
	}
}

// isFinished reports whether a cache job is finished.
func (e *job) isFinished() bool { return e.stage == api.CacheJobDone || e.stage == api.CacheJobFailed }

// endJob finishes a cache job with any result.
func (r *Runner) endJob(e *job, edit func(*job)) {
	r.opts.Templates.Unpin(e.order.ContentID, pinHolder(e.order.ID))
	r.mu.Lock()
	edit(e)
	here := r.jobs[e.order.ID] == e
	r.mu.Unlock()
	if !here { // dropped in the meantime
		return
	}
	r.saveJobs()
	r.markChanged(e.order.ID)
}

// failJob ends a cache job that cannot be carried out.
func (r *Runner) failJob(e *job, cause error) {
	r.opts.Logger.Warn("distribution failed", "cache_job", e.order.ID, "template", e.order.TemplateName, "tag",
		e.order.Tag, "error", cause)
	r.endJob(e, func(e *job) { e.stage, e.message = api.CacheJobFailed, cause.Error() })
}

var errInstancePulls = errors.New("paused for the pull of an instance")
