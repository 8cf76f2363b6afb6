// Package cachejob carries out what a controller asks of a node's cached templates for
// no instance: to have a version ahead of need, and to remove a template.
//
// It is not the cache and pulls nothing by itself, and it knows neither instances nor
// the node link: who uses it hands over cache jobs, and what is to be told.
//
// Invariant: a version is kept for a cache job while it is on its way, and no longer: what was
// brought is the cache's like any other.
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
	maxErrands  = 1000 // that a node has at a time; more wait at the controller
	maxStatuses = 200  // in one report
	atOnce      = 2    // pulls for cache jobs; one of them may wait for a registry that is away
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

// Options are what a Runner is made of. Templates, Registry, Changed and Logger are needed.
type Options struct {
	Node      string // id of this node: what another identity left counts for nothing
	Templates Templates
	File      string                      // what outlives the agent is kept here; "": nothing
	Registry  func(address string) string // where to pull from by what a cache job says
	Changed   func()                      // there is something to tell; must not wait
	Logger    *slog.Logger
}

// Runner carries out cache jobs. Make it with New, then call Begin once. It may be used
// from many goroutines.
type Runner struct {
	o       Options
	running sync.WaitGroup // workers
	turns   chan struct{}  // has a value for each pull that continues
	saving  sync.Mutex     // one writes the file at a time; taken before mu

	mu      sync.Mutex          // guards the fields below; never held while Templates is called
	entries map[string]*job     // by the cache job's id
	dropped map[string]struct{} // ids of those that are gone, as is to be told
	untold  map[string]struct{} // ids of entries and dropped ones to be told
	starts  int                 // instances that pull
	calm    chan struct{}       // closed while there is none
	hurry   chan struct{}       // closed while there is one
}

// job is one cache job. mu of its Runner guards all but order.
type job struct {
	order   api.CacheJob
	stop    context.CancelFunc // ends its worker
	stage   api.CacheJobStage
	done    float64 // 0..1, of the pull
	message string
	removed int
	kept    int
	toldAt  time.Time // when progress was last to be told
	toldOf  float64
}

// New makes a runner. It touches nothing yet.
func New(o Options) *Runner {
	r := &Runner{
		o: o, turns: make(chan struct{}, atOnce),
		entries: map[string]*job{}, dropped: map[string]struct{}{}, untold: map[string]struct{}{},
		calm: make(chan struct{}), hurry: make(chan struct{}),
	}
	close(r.calm)
	return r
}

// Begin takes up what an earlier agent has left. Workers end with ctx; Wait waits for them.
func (r *Runner) Begin(ctx context.Context) {
	for _, order := range r.load() {
		r.take(ctx, order)
	}
}

// Wait returns when no worker runs any more.
func (r *Runner) Wait() { r.running.Wait() }

// Take takes cache jobs over. Repeated ones are told again. Workers end with ctx.
func (r *Runner) Take(ctx context.Context, orders []api.CacheJob) {
	if len(orders) == 0 {
		return
	}
	for _, order := range orders {
		r.take(ctx, order)
	}
	r.save()
}

func (r *Runner) take(ctx context.Context, order api.CacheJob) {
	r.mu.Lock()
	_, known := r.entries[order.ID]
	full := len(r.entries) >= maxErrands
	r.mu.Unlock()
	switch {
	case order.ID == "":
	case order.Kind == api.ErrandDrop:
		r.drop(order.ID)
	case known:
		r.tell(order.ID)
	case full:
		r.o.Logger.Warn("too many errands; this one waits", "errand", order.ID, "most", maxErrands)
	case order.Kind == api.ErrandPull:
		r.o.Logger.Info("distribution accepted", "errand", order.ID, "template", order.TemplateName, "tag", order.Tag)
		r.o.Templates.Pin(order.ContentID, holder(order.ID))
		r.employ(ctx, order, r.deliver)
	case order.Kind == api.ErrandRemove:
		r.employ(ctx, order, r.remove)
	default:
		r.o.Logger.Warn("an errand of a kind that this program does not know", "errand", order.ID, "kind", string(order.Kind))
	}
}

// holder is the name under which a version is kept for a cache job.
func holder(id string) string { return "errand:" + id }

// employ gives a cache job a worker.
func (r *Runner) employ(ctx context.Context, order api.CacheJob, work func(context.Context, *job)) {
	e := &job{order: order, stage: api.ErrandAccepted}
	r.mu.Lock()
	ctx, cancel := context.WithCancel(ctx)
	e.stop = cancel
	r.entries[order.ID] = e
	r.mu.Unlock()
	r.tell(order.ID)
	r.running.Go(func() {
		defer cancel()
		work(ctx, e)
	})
}

// drop forgets a cache job and gives back what was kept for it.
func (r *Runner) drop(id string) {
	r.mu.Lock()
	e := r.entries[id]
	delete(r.entries, id)
	if len(r.dropped) >= maxErrands {
		clear(r.dropped) // the controller asks again
	}
	r.dropped[id] = struct{}{}
	r.mu.Unlock()
	if e != nil {
		e.stop()
		r.o.Templates.Unpin(e.order.ContentID, holder(id))
		r.o.Logger.Info("errand dropped", "errand", id)
	}
	r.tell(id)
}

// DropAll forgets everything, unsaid: this node has left its cloud.
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
	clear(r.untold)
	r.mu.Unlock()
	r.save()
}

// PauseForInstance makes the pulls for cache jobs wait until the returned function is called: an
// instance pulls, and it comes first.
func (r *Runner) PauseForInstance() (goOn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.starts++; r.starts == 1 {
		r.calm = make(chan struct{})
		close(r.hurry)
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.starts--; r.starts == 0 {
			close(r.calm)
			r.hurry = make(chan struct{})
		}
	}
}

// tell has the state of a cache job told.
func (r *Runner) tell(id string) {
	r.mu.Lock()
	r.untold[id] = struct{}{}
	r.mu.Unlock()
	r.o.Changed()
}

// ResendStatuses has everything told again.
func (r *Runner) ResendStatuses() {
	r.mu.Lock()
	for id := range r.entries {
		r.untold[id] = struct{}{}
	}
	some := len(r.untold) > 0
	r.mu.Unlock()
	if some {
		r.o.Changed()
	}
}

// Statuses returns what is to be told now, ordered; what does not fit comes with the next
// call. Each is given once, unless it changes or Again is called.
func (r *Runner) Statuses() []api.CacheJobStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []api.CacheJobStatus
	for id := range r.untold {
		if len(list) == maxStatuses {
			break
		}
		delete(r.untold, id)
		if e := r.entries[id]; e != nil {
			list = append(list, e.status())
		} else if _, is := r.dropped[id]; is {
			list = append(list, api.CacheJobStatus{ID: id, Stage: api.ErrandDropped})
		}
	}
	slices.SortFunc(list, func(a, b api.CacheJobStatus) int { return strings.Compare(a.ID, b.ID) })
	return list
}

func (e *job) status() api.CacheJobStatus {
	return api.CacheJobStatus{ID: e.order.ID, Stage: e.stage, Progress: e.done, Message: e.message, Removed: e.removed, Kept: e.kept}
}

// Again has statuses told again that did not arrive.
func (r *Runner) Again(lost []api.CacheJobStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range lost {
		r.untold[s.ID] = struct{}{}
	}
}

// Answered notes what the controller knows now. What is done or has failed is over with that.
func (r *Runner) Answered(sent []api.CacheJobStatus) {
	over := false
	r.mu.Lock()
	for _, s := range sent {
		if s.Stage == api.ErrandDropped {
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

// over reports whether nothing more is done for a cache job.
func (e *job) over() bool { return e.stage == api.ErrandDone || e.stage == api.ErrandFailed }

// end makes a cache job be over, however it was.
func (r *Runner) end(e *job, edit func(*job)) {
	r.o.Templates.Unpin(e.order.ContentID, holder(e.order.ID))
	r.mu.Lock()
	edit(e)
	here := r.entries[e.order.ID] == e
	r.mu.Unlock()
	if !here { // dropped meanwhile
		return
	}
	r.save()
	r.tell(e.order.ID)
}

// fail ends a cache job that cannot be carried out.
func (r *Runner) fail(e *job, cause error) {
	r.o.Logger.Warn("distribution failed", "errand", e.order.ID, "template", e.order.TemplateName, "tag", e.order.Tag, "error", cause)
	r.end(e, func(e *job) { e.stage, e.message = api.ErrandFailed, cause.Error() })
}

var errYield = errors.New("an instance pulls")
