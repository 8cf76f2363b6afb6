package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/cachejobs"
	"github.com/buildyard/buildyard/internal/controller/reconcile"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// cacheJobJudge reads every revision of the cache jobs and checks the invariants.
type cacheJobJudge struct {
	cacheJobs map[string]farm.CacheJob
	outcomes  map[string]farm.CacheJobResult
	nodes     map[string]farm.Node
	broken    []string
}

func (j *cacheJobJudge) blame(rev int64, format string, args ...any) {
	j.broken = append(j.broken, fmt.Sprintf("revision %d: ", rev)+fmt.Sprintf(format, args...))
}

// read reads all existing revisions.
func (j *cacheJobJudge) read(t *testing.T, b *mem.Backend) {
	last, err := b.Barrier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = b.Watch(t.Context(), store.DefaultPrefix+"/v1/", 2, func(batch store.WatchBatch) error {
		was := maps.Clone(j.cacheJobs)
		for _, ev := range batch.Events {
			if id, ok := idOf(record.KindNode, ev.Key); ok {
				keep(j.nodes, id, ev)
			}
			if id, ok := idOf(record.KindCacheJobResult, ev.Key); ok {
				j.outcome(batch.Rev, id, was, ev)
			}
		}
		for _, ev := range batch.Events {
			if id, ok := idOf(record.KindCacheJob, ev.Key); ok {
				before := j.cacheJobs[id]
				j.cacheJob(batch.Rev, before, keep(j.cacheJobs, id, ev))
			}
		}
		if batch.Rev >= last {
			return errRead
		}
		return nil
	})
}

// outcome checks the result of a cache job on a node: it comes one time, while the cache job is
// open.
func (j *cacheJobJudge) outcome(rev int64, id string, cacheJobs map[string]farm.CacheJob, ev store.RawEvent) {
	_, again := j.outcomes[id]
	keep(j.outcomes, id, ev)
	cacheJob, _ := record.SplitCacheJobResultID(id)
	of, there := cacheJobs[cacheJob]
	switch {
	case ev.Deleted:
	case again:
		j.blame(rev, "the outcome %s came twice", id)
	case !there || !of.IsOpen():
		j.blame(rev, "the outcome %s came when its cache job was over", id)
	}
}

// cacheJob checks a change of a cache job: it ends one time, and as finished when all its nodes are.
func (j *cacheJobJudge) cacheJob(rev int64, was, now farm.CacheJob) {
	switch {
	case now.ID == "" || was.ID == "":
	case !was.IsOpen():
		j.blame(rev, "%s ended as %s and then as %q", now.ID, was.EndReason, now.EndReason)
	case now.EndReason == farm.CacheJobFinished:
		for _, node := range now.Nodes {
			_, there := j.nodes[node]
			if _, done := j.outcomes[record.CacheJobResultID(now.ID, node)]; there && !done {
				j.blame(rev, "%s is finished without node %s", now.ID, node)
			}
		}
	}
}

// cacheJobTrial is a trial with the jobs of its nodes.
type cacheJobTrial struct {
	*trial
	left []api.JoinAnswer // that may have been deleted

	mu    sync.Mutex                               // guards the fields below
	has   map[string]map[string]api.CacheJobStatus // node -> cache job -> its progress
	asked []string                                 // distributions that were acknowledged
}

// cacheJobDeeds are the random actions on distributions, each through one replica.
var cacheJobDeeds = map[string]func(*cacheJobTrial, *end, act){
	"distribute": func(r *cacheJobTrial, e *end, s act) {
		r.async(s, func(ctx context.Context) {
			id, err := e.CacheJobs.Distribute(ctx, cachejobs.DistributeRequest{TemplateID: templateID})
			r.mu.Lock()
			defer r.mu.Unlock()
			if err == nil {
				r.asked = append(r.asked, id)
			}
		})
	},
	"cancel": func(r *cacheJobTrial, e *end, s act) {
		r.mu.Lock()
		asked := r.asked
		r.mu.Unlock()
		if len(asked) > 0 && s.by == 0 {
			id := asked[s.which%len(asked)]
			r.async(s, func(ctx context.Context) { _ = e.CacheJobs.Cancel(ctx, id, nil) })
		}
	},
	"work": func(r *cacheJobTrial, e *end, s act) {
		if len(r.nodes) > 0 {
			node := r.nodes[s.which%len(r.nodes)]
			r.async(s, func(ctx context.Context) { r.work(ctx, e, node, s.by) })
		}
	},
	"join": func(r *cacheJobTrial, e *end, s act) { r.joins(e, s) },
	"delete": func(r *cacheJobTrial, e *end, s act) {
		r.left = append(r.left, r.nodes...) // those that are removed at the end
		r.deletes(e, s)
	},
}

func init() {
	for _, name := range []string{"lose lease", "restart", "late commits", "late watch", "lost reply", "mend", "time"} {
		cacheJobDeeds[name] = func(r *cacheJobTrial, e *end, s act) { deeds[name](r.trial, e, s) }
	}
}

// work lets a node request its jobs from a replica, and report its progress: by determines how far
// it gets.
func (r *cacheJobTrial) work(ctx context.Context, e *end, node api.JoinAnswer, by int) {
	answer, err := e.Link.Poll(ctx, node.Credential, api.PollRequest{
		Protocol: api.LinkProtocol, NodeID: node.NodeID, BootID: "boot", InfoHash: "info", HeldHash: "held",
		Info: &api.NodeInfo{Arch: "amd64", CPUs: 8, MemoryMB: 16384, Driver: "sim"}, HasHeld: true,
	}, 0)
	if err != nil {
		return
	}
	report := api.Report{Protocol: api.LinkProtocol, NodeID: node.NodeID, BootID: "boot"}
	r.mu.Lock()
	has := r.has[node.NodeID]
	if has == nil {
		has = map[string]api.CacheJobStatus{}
		r.has[node.NodeID] = has
	}
	for _, o := range answer.CacheJobs {
		status := api.CacheJobStatus{ID: o.ID, Stage: api.CacheJobAccepted}
		switch _, known := has[o.ID]; {
		case o.Kind == api.CacheJobDrop:
			delete(has, o.ID)
			status.Stage = api.CacheJobDropped
			report.CacheJobs = append(report.CacheJobs, status)
		case !known:
			has[o.ID] = status
		}
	}
	stages := []api.CacheJobStage{api.CacheJobAccepted, api.CacheJobWorking, api.CacheJobDone, api.CacheJobFailed}
	for id, status := range has {
		if status.Stage != api.CacheJobDone && status.Stage != api.CacheJobFailed {
			status.Stage = stages[by]
		}
		has[id] = status
		report.CacheJobs = append(report.CacheJobs, status)
	}
	r.mu.Unlock()
	if _, err := e.Link.Report(ctx, node.Credential, report); err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, status := range report.CacheJobs {
		if status.Stage == api.CacheJobDone || status.Stage == api.CacheJobFailed {
			delete(has, status.ID) // as an agent does
		}
	}
}

// TestDistributionsOverReplicas has two replicas, lost leases, stuck and lost commits and restarts
// while nodes get jobs, work and report through either. No result is lost, changed or too late, and
// in the end every acknowledged distribution exists and has ended.
func TestDistributionsOverReplicas(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := actsOf(cacheJobDeeds).Draw(rt, "steps")
		var broken []string
		synctest.Test(t, func(t *testing.T) { broken = tryCacheJobs(t, steps) })
		if len(broken) > 0 {
			rt.Fatalf("%s", strings.Join(broken, "\n"))
		}
	})
}

func tryCacheJobs(t *testing.T, steps []act) []string {
	r := &cacheJobTrial{trial: &trial{pair: newPair(t)}, has: map[string]map[string]api.CacheJobStatus{}}
	defer r.stop()
	r.join(r.ends[0], "first", 1)
	for _, s := range steps {
		cacheJobDeeds[s.deed](r, r.ends[s.end], s)
	}
	r.mend()
	r.running.Wait()
	for _, node := range r.left { // the call may have died with its replica
		if !slices.Contains(r.nodes, node) {
			_ = r.ends[0].Nodes.Delete(t.Context(), node.NodeID)
		}
	}
	for range 15 { // some are sent again after 5 s
		for _, e := range r.ends {
			for _, node := range r.nodes {
				r.work(t.Context(), e, node, 2)
			}
		}
		time.Sleep(time.Second)
	}
	time.Sleep(reconcile.SweepInterval + 5*time.Second)
	synctest.Wait()
	j := &cacheJobJudge{
		cacheJobs: map[string]farm.CacheJob{}, outcomes: map[string]farm.CacheJobResult{},
		nodes: map[string]farm.Node{},
	}
	j.read(t, r.backend)
	for _, id := range r.asked {
		e, there := j.cacheJobs[id]
		if !there || e.IsOpen() {
			j.blame(0, "%s is there: %t, and ended as %q", id, there, e.EndReason)
		}
		for i, end := range r.ends {
			view, err := end.CacheJobs.Get(t.Context(), farm.CacheJobDistribute, id)
			if err != nil || !slices.Equal(slices.Sorted(maps.Keys(view.On)), e.Nodes) {
				j.blame(0, "replica %d shows %v of %s, %v", i, view.On, id, err)
			}
			for node, o := range view.On {
				was, done := j.outcomes[record.CacheJobResultID(id, node)]
				if done && (o.Done != was.Done || o.Error != was.Error) {
					j.blame(0, "replica %d shows %+v of node %s, it was %+v", i, o, node, was)
				}
			}
		}
	}
	return j.broken
}
