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

// CacheJobEndReason is why a cache job has ended.
type CacheJobEndReason string

// The ends of cache jobs.
const (
	CacheJobFinished CacheJobEndReason = "finished" // every node is done, has failed or is gone
	CacheJobCanceled CacheJobEndReason = "canceled" // a caller canceled it
	CacheJobExpired  CacheJobEndReason = "expired"  // some node never connected
)

// CacheJob is a request that many nodes do the same with a template. The record is written when it
// is created and when it ends; the results of the nodes are separate records, so that a node that
// is done costs a small write.
type CacheJob struct {
	ID             string            `json:"id"`
	Kind           CacheJobKind      `json:"kind"`
	Template       TemplateRef       `json:"template"`           // of a removal without a version
	Registry       string            `json:"registry,omitempty"` // of a removal, without a version
	RequestedAt    time.Time         `json:"asked"`
	Nodes          []string          `json:"nodes"`              // that were addressed, sorted; fixed
	WrongArchNodes []string          `json:"unfit,omitempty"`    // of Nodes, sorted: their architecture is another one
	WrongOSNodes   []string          `json:"wrong_os,omitempty"` // of Nodes, sorted: they do not run the guest, or its images
	EndedAt        time.Time         `json:"ended,omitzero"`     // zero: it is open
	EndReason      CacheJobEndReason `json:"end,omitempty"`      // why
}

// IsOpen reports whether nodes still work on the cache job.
func (e *CacheJob) IsOpen() bool { return e.EndedAt.IsZero() }

// HasWorkFor reports whether a node has anything to do with the cache job.
func (e *CacheJob) HasWorkFor(node string) bool {
	_, addressed := slices.BinarySearch(e.Nodes, node)
	return addressed && !e.hasWrongArch(node) && !e.hasWrongOS(node)
}

func (e *CacheJob) hasWrongOS(node string) bool {
	_, unfit := slices.BinarySearch(e.WrongOSNodes, node)
	return unfit
}

// wrongOSMessage describes a node of WrongOSNodes.
func (e *CacheJob) wrongOSMessage() string {
	switch {
	case e.Template.AnkaImage:
		return "The node does not run macOS guests from archives of anka"
	case e.Template.OS == OSMacOS:
		return "The node does not run macOS guests from raw disks"
	}
	return "The node runs macOS guests only"
}

func (e *CacheJob) hasWrongArch(node string) bool {
	_, unfit := slices.BinarySearch(e.WrongArchNodes, node)
	return unfit
}

// CacheJobResult is the result of a cache job on one node. It is written once.
type CacheJobResult struct {
	Done            bool      `json:"done"`               // the version is there, or nothing of the template is left
	Error           string    `json:"error,omitempty"`    // why it is not, permanently
	Progress        float64   `json:"progress,omitempty"` // 0..1
	RemovedVersions int       `json:"removed,omitempty"`  // versions
	KeptVersions    int       `json:"kept,omitempty"`     // versions that stay
	EndedAt         time.Time `json:"at"`
}

// The messages about nodes without a result. The first one is exact: clients compare it.
const (
	cacheJobCanceled = "request canceled"
	cacheJobExpired  = "The node did not do it before the request expired"
	cacheJobGone     = "The node was removed from the cloud"
)

var cacheJobEndMessages = map[CacheJobEndReason]string{
	CacheJobCanceled: cacheJobCanceled, CacheJobExpired: cacheJobExpired, CacheJobFinished: cacheJobGone,
}

// ResultOn returns what clients see of the cache job on an addressed node: o is its result, nil when
// there is none yet; present reports whether the node is in the cloud, progress is the last one
// that it has reported.
func (e *CacheJob) ResultOn(node string, o *CacheJobResult, present bool, progress float64) CacheJobResult {
	switch {
	case e.hasWrongOS(node):
		return CacheJobResult{Error: e.wrongOSMessage()}
	case e.hasWrongArch(node):
		return CacheJobResult{Error: "The template is for " + e.Template.Arch + ", the node is not"}
	case o != nil:
		return *o
	case !e.IsOpen():
		return CacheJobResult{Error: cacheJobEndMessages[e.EndReason]}
	case !present:
		return CacheJobResult{Error: cacheJobGone}
	default:
		return CacheJobResult{Progress: progress}
	}
}
