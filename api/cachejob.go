package api

// CacheJobKind is the kind of a cache job.
type CacheJobKind string

// The cache job kinds.
const (
	CacheJobPull   CacheJobKind = "pull"   // cache a version
	CacheJobRemove CacheJobKind = "remove" // remove every version of a template that nothing uses
	CacheJobDrop   CacheJobKind = "drop"   // forget the cache job: it has ended, and pulls for it stop
)

// CacheJob asks a node to change its cached templates, independent of an instance. It is sent until the node
// has reported a status of it; a node recognizes a repeated one by ID. A CacheJobDrop has only ID and Kind, a
// CacheJobRemove no version.
type CacheJob struct {
	ID           string       `json:"id"`   // of the request to many nodes
	Kind         CacheJobKind `json:"kind"` // prefetch or removal
	TemplateID   string       `json:"template_id,omitempty"`
	TemplateName string       `json:"template_name,omitempty"`
	Tag          string       `json:"tag,omitempty"`
	Version      int          `json:"version,omitempty"`
	ContentID    string       `json:"content_id,omitempty"` // of the version to prefetch
	Registry     string       `json:"registry,omitempty"`   // address to pull from; "": the node's own
}

// CacheJobStage is the progress of a node with a cache job.
type CacheJobStage string

// The stages, in their order. CacheJobDone, CacheJobFailed and CacheJobDropped are final.
const (
	CacheJobAccepted CacheJobStage = "accepted" // it is queued, or waits for another try
	CacheJobWorking  CacheJobStage = "working"  // see Progress
	CacheJobDone     CacheJobStage = "done"
	CacheJobFailed   CacheJobStage = "failed"  // see Message
	CacheJobDropped  CacheJobStage = "dropped" // the node has stopped working on it
)

// CacheJobStatus is a node's report on a cache job. It is a level: a status contains the complete state, so
// that a lost or repeated one does no harm.
type CacheJobStatus struct {
	ID       string        `json:"id"` // of the cache job
	Stage    CacheJobStage `json:"stage"`
	Progress float64       `json:"progress,omitempty"` // 0..1, of the bytes of a pull
	Message  string        `json:"message,omitempty"`
	Removed  int           `json:"removed,omitempty"` // versions that a CacheJobRemove has removed
	Kept     int           `json:"kept,omitempty"`    // versions that stay since they are in use
}
