package reconcile

import (
	"context"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	roundSize     = 2000 // records that are checked before the jobs run
	maxConcurrent = 32   // of them
)

const (
	// RetryInterval is when a record is checked again for which nothing can be done now.
	RetryInterval = 15 * time.Second
	// SweepInterval is how often everything that seldom changes is checked.
	SweepInterval = time.Minute
)

// Options configures a Reconciler. All fields are set.
type Options struct {
	Tick            time.Duration // between two runs of the jobs, and the shortest pause between two checks of a record
	InstanceTimeout time.Duration // how long the instances of a node that is Offline may come back
	KeepTerminated  time.Duration // how long a terminated instance that had started is kept; negative: not at all
	StartTimeout    time.Duration // of a VM's start, without the pull
	PullTimeout     time.Duration // how long a pull may make no progress
	PushTimeout     time.Duration // how long a push may make no progress
	ContactGap      time.Duration // the longest time without contact after which a node still counts as in contact

	Nodes Nodes
	Jobs  []Job

	// Paused reports whether what no caller has requested is delayed.
	Paused func() bool
	// From returns the moment from which a timeout that began at t counts in the leader term.
	From func(t time.Time) time.Time
	// LastContact returns when a node was last in contact with any replica.
	LastContact func(node string) time.Time
	// Unacknowledged reports whether this replica has the order of an instance, which its node has
	// not acknowledged.
	Unacknowledged func(inst *farm.Instance) bool
	// Archive returns the changes that move an instance into the history.
	Archive func(inst *farm.Instance, rev int64) []store.Change
	// EndSave ends a save request on which its instance, nil when it is removed, no longer works.
	EndSave func(ctx context.Context, w store.Writer, request string, inst *farm.Instance) error
}

// Nodes changes the states of nodes in a leader term.
type Nodes interface {
	// Reconcile decides the state of a node. It returns when to check again; zero: not before something
	// changes.
	Reconcile(ctx context.Context, node *farm.Node) (again time.Time, err error)
	// Affected returns the node that has to be checked because one of its instances changed, and when;
	// "": none has to be.
	Affected(old, now *farm.Instance) (node string, at time.Time)
}

// Reconciler does the periodic work of the leader. It exists for one leader term, and writes through
// it.
type Reconciler struct {
	db    record.DB
	term  *record.Term
	o     Options
	queue *queue
	jobs  []*job
	swept time.Time // when all jobs were last due
}

// New returns a reconciler for a leader term; its queue is empty.
func New(db record.DB, term *record.Term, o Options) *Reconciler {
	r := &Reconciler{db: db, term: term, o: o, queue: newQueue()}
	for _, j := range o.Jobs {
		r.jobs = append(r.jobs, &job{Job: j})
	}
	return r
}

// Run checks every record, and then those that are due, until the context ends.
func (r *Reconciler) Run(ctx context.Context) {
	defer r.db.Store.Subscribe(r.observe)()
	r.load()
	ticker := time.NewTicker(r.o.Tick)
	defer ticker.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.runJobs(ctx)
			continue
		case <-r.queue.wake:
		case <-timer.C:
		}
		if next := r.round(ctx); !next.IsZero() {
			timer.Reset(max(next.Sub(r.db.Now()), 0))
		}
	}
}

// load enqueues every record.
func (r *Reconciler) load() {
	now := r.db.Now()
	for id := range r.db.Tables.Nodes.All() {
		r.enqueueNode(id, now)
	}
	for _, inst := range r.db.Tables.Instances.All() {
		r.enqueueInstance(inst)
	}
}

// observe enqueues the records, and the jobs, that changes make due.
func (r *Reconciler) observe(events []store.Event) {
	for _, e := range events {
		for _, j := range r.jobs {
			j.observe(e)
		}
		switch e.Kind {
		case record.KindInstance:
			r.observeInstance(e)
		case record.KindNode:
			r.observeNode(e)
		case record.KindSave:
			if s, ok := e.New.(*farm.SaveRequest); ok && s.Status == farm.SavePending {
				if inst, _, ok := r.db.Tables.Instances.Get(s.Request.InstanceID); ok {
					r.enqueueInstance(inst)
				}
			}
		case record.KindGroup:
			if e.New == nil {
				r.enqueueWaiting(e.ID)
			}
		case record.KindNodeInfo:
			old, _ := e.Old.(*farm.NodeInfo)
			if info, ok := e.New.(*farm.NodeInfo); ok && (old == nil || old.Hypervisor != info.Hypervisor) {
				r.enqueueNode(e.ID, r.db.Now())
			}
		}
	}
}

func (r *Reconciler) observeInstance(e store.Event) {
	old, _ := e.Old.(*farm.Instance)
	inst, ok := e.New.(*farm.Instance)
	if ok {
		r.enqueueInstance(inst)
	} else {
		r.queue.remove(delayedItem{record.KindInstance, e.ID})
	}
	if node, at := r.o.Nodes.Affected(old, inst); node != "" {
		r.enqueueNode(node, at)
	}
}

func (r *Reconciler) observeNode(e store.Event) {
	r.enqueueNode(e.ID, r.db.Now())
	old, _ := e.Old.(*farm.Node)
	now, _ := e.New.(*farm.Node)
	if old != nil && (old.State == farm.NodeOffline || now != nil && now.DrainInfo != old.DrainInfo) {
		r.enqueueInstancesOf(e.ID)
	}
}

func (r *Reconciler) enqueueNode(id string, at time.Time) {
	r.queue.put(delayedItem{record.KindNode, id}, at)
}

// enqueueInstance schedules a check of an instance when its first rule is due.
func (r *Reconciler) enqueueInstance(inst *farm.Instance) {
	r.queue.put(delayedItem{record.KindInstance, inst.ID}, r.next(inst))
}

// enqueueInstancesOf schedules a check of the instances of a node whose state has changed.
func (r *Reconciler) enqueueInstancesOf(node string) {
	for _, inst := range r.db.Tables.Instances.Where(record.ByNode, node) {
		r.enqueueInstance(inst)
	}
}

// enqueueWaiting schedules a check of the instances that are pending in a deleted group: the replica
// that deletes it ends them, and may die before it is done.
func (r *Reconciler) enqueueWaiting(group string) {
	at := r.db.Now().Add(record.BarrierTimeout)
	for id, inst := range r.db.Tables.Instances.All() {
		if inst.GroupID == group && inst.AwaitsPlacement() {
			r.queue.put(delayedItem{record.KindInstance, id}, at)
		}
	}
}

// round checks every record that is due, and returns the time of the next one.
func (r *Reconciler) round(ctx context.Context) (next time.Time) {
	due, next := r.queue.popDue(r.db.Now(), roundSize)
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxConcurrent)
	for _, it := range due {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			r.check(ctx, it)
		})
	}
	wg.Wait()
	return next
}

// check does the work for one record and schedules the next check.
func (r *Reconciler) check(ctx context.Context, it delayedItem) {
	again, err := time.Time{}, error(nil)
	switch it.kind {
	case record.KindNode:
		again, err = r.CheckNode(ctx, it.id)
	default:
		again, err = r.CheckInstance(ctx, it.id)
	}
	soon := r.db.Now().Add(r.o.Tick)
	if err != nil {
		if ctx.Err() == nil {
			r.db.Log.WarnContext(ctx, "reconcile failed", "kind", string(it.kind), "id", it.id, "error", err)
		}
		again = soon
	}
	if !again.IsZero() && again.Before(soon) && !again.After(r.db.Now()) {
		again = soon // work that could not be done now is not tried without a pause
	}
	r.queue.put(it, again)
}

// CheckNode changes the state of a node, or enqueues the instances of a removed one. It returns when the
// node must be checked again; zero: not before something changes.
func (r *Reconciler) CheckNode(ctx context.Context, id string) (again time.Time, err error) {
	node, _, ok := r.db.Tables.Nodes.Get(id)
	if !ok {
		r.enqueueInstancesOf(id)
		return again, nil
	}
	return r.o.Nodes.Reconcile(ctx, node)
}

// inContact returns a time, delayed as long as the node is not in contact then.
func (r *Reconciler) inContact(node string, at time.Time) time.Time {
	now := r.db.Now()
	if at.After(now) || now.Sub(r.o.From(r.o.LastContact(node))) <= r.o.ContactGap {
		return at
	}
	return now.Add(RetryInterval)
}
