package farm

import (
	"slices"
	"time"
)

// CacheJobKind is the operation of a cache job.
type CacheJobKind string

// The cache job kinds.
const (
	CacheJobDistribute CacheJobKind = "distribute" // pull a version ahead of need
	CacheJobRemove     CacheJobKind = "remove"     // remove the cached versions of a template
)

// CacheJobEnd is why a cache job has ended.
type CacheJobEnd string

// The ends of cache jobs.
const (
	CacheJobFinished CacheJobEnd = "finished" // every node is done, has failed or is gone
	CacheJobCanceled CacheJobEnd = "canceled" // a caller canceled it
	CacheJobExpired  CacheJobEnd = "expired"  // some node never connected
)

// CacheJob is a request that many nodes do the same with a template. The record is written when it
// is created and when it ends; the results of the nodes are separate records, so that a node that
// is done costs a small write.
type CacheJob struct {
	ID       string       `json:"id"`
	Kind     CacheJobKind `json:"kind"`
	Template TemplateRef  `json:"template"`           // of a removal without a version
	Registry string       `json:"registry,omitempty"` // of a removal, without a version
	Asked    time.Time    `json:"asked"`
	Nodes    []string     `json:"nodes"`           // that were addressed, sorted; fixed
	Unfit    []string     `json:"unfit,omitempty"` // of Nodes, sorted: their architecture is another one
	Ended    time.Time    `json:"ended,omitzero"`  // zero: it is open
	End      CacheJobEnd  `json:"end,omitempty"`   // why
}

// Open reports whether nodes still work on the cache job.
func (e *CacheJob) Open() bool { return e.Ended.IsZero() }

// Addresses reports whether a node has anything to do with the cache job.
func (e *CacheJob) Addresses(node string) bool {
	_, addressed := slices.BinarySearch(e.Nodes, node)
	return addressed && !e.unfit(node)
}

func (e *CacheJob) unfit(node string) bool {
	_, unfit := slices.BinarySearch(e.Unfit, node)
	return unfit
}

// CacheJobResult is the result of a cache job on one node. It is written once.
type CacheJobResult struct {
	Done     bool      `json:"done"`            // the version is there, or nothing of the template is left
	Error    string    `json:"error,omitempty"` // why it is not, permanently
	Progress float64   `json:"progress,omitempty"` // 0..1
	Removed  int       `json:"removed,omitempty"` // versions
	Kept     int       `json:"kept,omitempty"`    // versions that stay
	At       time.Time `json:"at"`
}

// The messages about nodes without a result. The first one is exact: clients compare it.
const (
	cacheJobCanceled = "request canceled"
	cacheJobExpired  = "The node did not do it before the request expired"
	cacheJobGone     = "The node was removed from the cloud"
)

var cacheJobEnds = map[CacheJobEnd]string{
	CacheJobCanceled: cacheJobCanceled, CacheJobExpired: cacheJobExpired, CacheJobFinished: cacheJobGone,
}

// On returns what clients see of the cache job on an addressed node: o is its result, nil when
// there is none yet; present reports whether the node is in the cloud, progress is the last one
// that it has reported.
func (e *CacheJob) On(node string, o *CacheJobResult, present bool, progress float64) CacheJobResult {
	switch {
	case e.unfit(node):
		return CacheJobResult{Error: "The template is for " + e.Template.Arch + ", the node is not"}
	case o != nil:
		return *o
	case !e.Open():
		return CacheJobResult{Error: cacheJobEnds[e.End]}
	case !present:
		return CacheJobResult{Error: cacheJobGone}
	default:
		return CacheJobResult{Progress: progress}
	}
}
