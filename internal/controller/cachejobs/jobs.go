package cachejobs

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Bounds of the cache jobs. In the end each node of a job has its own record.
const (
	MaxNodes      = 10000  // of one
	maxJobs       = 1000   // open and ended
	maxOpenJobs   = 500    // less than maxJobs, so that ended ones fit too
	maxTotalNodes = 100000 // nodes of all together
)

// Options configure Jobs. All fields are set.
type Options struct {
	RegistryAddress string // sent to the nodes

	// Version returns a version of a template in the registry, which the caller may pull: by tag or
	// number, the latest with neither.
	Version func(ctx context.Context, template, tag string, number *int) (
		api.TemplateDetail, api.TemplateVersion, error)
	// Guest returns the operating system of such a version's guest and the kind of its images; the rest
	// of the reference has no meaning.
	Guest func(ctx context.Context, template string, v api.TemplateVersion) (farm.TemplateRef, error)
	// Template returns a template in the registry; farm.CodeNotFound when there is none.
	Template func(ctx context.Context, id string) (api.TemplateDetail, error)
	// Group returns a node group; farm.CodeNotFound when there is none.
	Group func(ctx context.Context, id string) (*farm.Group, int64, error)
	// Changes returns what a creation writes so that a repeated request is recognized.
	Changes func(ctx context.Context, answer any) ([]store.Change, error)

	Progress func(node, job string) float64 // of a node with a job, as it last reported
	Pulling  func() int                     // nodes that pull for distributions now
	After    func(t time.Time) time.Time    // the moment from which a timeout that began at t counts
}

// Jobs are the cache jobs of a cloud.
type Jobs struct {
	db      record.DB
	opts    Options
	metrics metrics
}

// New returns the cache jobs in a database.
func New(db record.DB, opts Options) *Jobs { return &Jobs{db: db, opts: opts, metrics: newMetrics()} }

// NodeSelector selects the nodes of a request.
type NodeSelector struct {
	NodeIDs  []string              // empty: all nodes on which the caller may do it
	GroupIDs []string              // only nodes of one of these groups; empty: of any
	Matches  func(id string) bool  // only nodes for which it is true; nil: all
	May      func(id string) error // why they may not do it on a node; nil: they may on all
}

// allows returns why the caller may not do this on a node; nil when they may.
func (s NodeSelector) allows(id string) error {
	if s.May == nil {
		return nil
	}
	return s.May(id)
}

// View is a cache job with the results and progress of its nodes.
type View struct {
	*farm.CacheJob
	On map[string]farm.CacheJobResult // node id -> its result, or its progress so far
}

// Get returns one cache job of a kind; farm.CodeNotFound when there is none.
func (j *Jobs) Get(ctx context.Context, kind farm.CacheJobKind, id string) (View, error) {
	job, _, err := record.Lookup(ctx, j.db.Tables.CacheJobs, id)
	if err == nil && job.Kind != kind {
		err = farm.NotFound()
	}
	if err != nil {
		return View{}, err
	}
	return j.view(job), nil
}

// List returns at most limit cache jobs of a kind, oldest first, with ids after one and accepted by
// fits. A nil fits accepts all.
func (j *Jobs) List(kind farm.CacheJobKind, after string, limit int, fits func(*farm.CacheJob) bool) []View {
	var list []View
	for _, job := range j.db.Tables.CacheJobs.Range(after, math.MaxInt) {
		if len(list) == limit {
			break
		}
		if job.Kind == kind && (fits == nil || fits(job)) {
			list = append(list, j.view(job))
		}
	}
	return list
}

// view adds the results and the progress of its nodes to a cache job.
func (j *Jobs) view(job *farm.CacheJob) View {
	view := View{CacheJob: job, On: make(map[string]farm.CacheJobResult, len(job.Nodes))}
	results := j.results(job.ID)
	for _, node := range job.Nodes {
		result, progress := results[node], 0.0
		if result == nil {
			progress = j.opts.Progress(node, job.ID)
		}
		view.On[node] = job.ResultOn(node, result, j.nodeExists(node), progress)
	}
	return view
}

// results returns the results of a cache job so far, by node.
func (j *Jobs) results(job string) map[string]*farm.CacheJobResult {
	list := map[string]*farm.CacheJobResult{}
	for id, result := range j.db.Tables.CacheJobResults.Range(job+".", math.MaxInt) {
		of, node := record.SplitCacheJobResultID(id)
		if of != job {
			break
		}
		list[node] = result
	}
	return list
}

func (j *Jobs) nodeExists(id string) bool {
	_, _, ok := j.db.Tables.Nodes.Get(id)
	return ok
}

// selectNodes returns the ids of nodes, sorted: the named ones, or all on which the caller may do it,
// and of these those that are in the groups and match.
func (j *Jobs) selectNodes(ctx context.Context, s NodeSelector) ([]string, error) {
	for _, group := range s.GroupIDs {
		if _, _, err := j.opts.Group(ctx, group); err != nil {
			return nil, err
		}
	}
	var nodes []string
	in := func(n *farm.Node) bool {
		isMember := func(group string) bool { return slices.Contains(n.Groups, group) }
		return (len(s.GroupIDs) == 0 || slices.ContainsFunc(s.GroupIDs, isMember)) &&
			(s.Matches == nil || s.Matches(n.ID))
	}
	if len(s.NodeIDs) == 0 {
		for id, node := range j.db.Tables.Nodes.All() {
			if in(node) && s.allows(id) == nil {
				nodes = append(nodes, id)
			}
		}
	}
	for _, id := range s.NodeIDs {
		node, _, err := record.Lookup(ctx, j.db.Tables.Nodes, id)
		if err == nil {
			err = s.allows(id)
		}
		if err != nil {
			return nil, err
		}
		if in(node) {
			nodes = append(nodes, node.ID)
		}
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	if len(nodes) > MaxNodes {
		return nil, farm.Refused("%d nodes are too many for one request: select at most %d with node_ids", len(nodes),
			MaxNodes)
	}
	return nodes, nil
}

// create writes a cache job, with the changes in with, unless there are too many.
func (j *Jobs) create(ctx context.Context, job *farm.CacheJob, with ...store.Change) error {
	open, nodes := 0, len(job.Nodes)
	for _, other := range j.db.Tables.CacheJobs.All() {
		if other.IsOpen() {
			open++
			nodes += len(other.Nodes)
		}
	}
	switch {
	case open >= maxOpenJobs:
		return farm.Refused(
			"%d distributions and removals are open, which is the most there may be: cancel some, or wait until they "+
				"are done", open)
	case nodes > maxTotalNodes:
		return farm.Refused(
			"The open distributions and removals have %d nodes together with this one, the most is %d: cancel some, "+
				"or wait until they are done",
			nodes, maxTotalNodes)
	}
	return j.db.Store.Commit(ctx, append(with, store.Put(j.db.Tables.CacheJobs, job.ID, job, store.IfAbsent))...)
}
