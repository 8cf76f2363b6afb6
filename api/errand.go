package api

// ErrandKind is what a node is asked to do with its cached templates.
type ErrandKind string

// The errand kinds.
const (
	ErrandPull   ErrandKind = "pull"   // have a version
	ErrandRemove ErrandKind = "remove" // remove every version of a template that nothing uses
	ErrandDrop   ErrandKind = "drop"   // forget the errand: it is over, nothing is pulled for it any more
)

// Errand asks a node to do something with its cached templates, for no instance. It
// is sent until the node has said something of it; a node knows a repeated one by ID.
// Of an ErrandDrop only ID and Kind are given, of an ErrandRemove no version.
type Errand struct {
	ID           string     `json:"id"` // of the request that was made to many nodes
	Kind         ErrandKind `json:"kind"`
	TemplateID   string     `json:"template_id,omitempty"`
	TemplateName string     `json:"template_name,omitempty"`
	Tag          string     `json:"tag,omitempty"`
	Version      int        `json:"version,omitempty"`
	ContentID    string     `json:"content_id,omitempty"`
	Registry     string     `json:"registry,omitempty"` // address to pull from; "": the node's own
}

// ErrandStage is how far a node is with an errand.
type ErrandStage string

// The stages, in the order in which they come. ErrandDone, ErrandFailed and
// ErrandDropped are for good.
const (
	ErrandAccepted ErrandStage = "accepted" // it waits for its turn, or for another try
	ErrandWorking  ErrandStage = "working"  // Progress says how far
	ErrandDone     ErrandStage = "done"
	ErrandFailed   ErrandStage = "failed"  // Message says why
	ErrandDropped  ErrandStage = "dropped" // the node does nothing for it any more
)

// ErrandStatus is what a node says of an errand. It is a level: a status says
// everything, so that a lost or repeated one does no harm.
type ErrandStatus struct {
	ID       string      `json:"id"`
	Stage    ErrandStage `json:"stage"`
	Progress float64     `json:"progress,omitempty"` // 0..1, of the bytes of a pull
	Message  string      `json:"message,omitempty"`
	Removed  int         `json:"removed,omitempty"` // versions that an ErrandRemove has removed
	Kept     int         `json:"kept,omitempty"`    // versions that stay since they are in use
}
