package api

// Storage jobs of a registry: POST /registry/v2/upkeep starts one, GET returns its status, DELETE cancels it.
// One runs at a time. GET /registry/v2/stats needs no job.

// Kinds of StorageJobRequest.Do.
const (
	StorageJobCheck  = "check"
	StorageJobRepair = "repair"
	StorageJobGC     = "gc"
)

// States of a StorageJob.
const (
	StorageJobNone    = "none" // no job was requested since the registry started
	StorageJobRunning = "running"
	StorageJobDone    = "done"
	StorageJobFailed  = "failed"
)

// StorageJobRequest requests a storage job.
type StorageJobRequest struct {
	Do   string `json:"do"`             // "check", "repair" or "gc"
	Deep bool   `json:"deep,omitempty"` // read and verify every frame
	Rate int64  `json:"rate,omitempty"` // maximum bytes per second of a deep check; 0: unlimited
	// EmptyTrash makes a gc remove the content of the trash permanently, whatever its age.
	EmptyTrash bool `json:"empty_trash,omitempty"`
	// DryRun makes a gc only report what it would do.
	DryRun bool `json:"dry_run,omitempty"`
}

// StorageJob is the last requested job and its progress.
type StorageJob struct {
	State    string             `json:"state"` // StorageJobNone, StorageJobRunning, StorageJobDone or StorageJobFailed
	Request  *StorageJobRequest `json:"request,omitempty"`
	Progress StorageJobProgress `json:"progress"`
	Problem  string             `json:"problem,omitempty"` // why it failed
	Check    *RegistryCheck     `json:"check,omitempty"`   // result of a check
	Repair   *RegistryRepair    `json:"repair,omitempty"`  // result of a repair
	GC       *RegistryGC        `json:"gc,omitempty"`      // result of a garbage collection
}

// StorageJobProgress is how far a check is.
type StorageJobProgress struct {
	Done  int64 `json:"done"`            // bytes of layer files that were verified
	Total int64 `json:"total"`           // bytes that a deep check will verify
	Rate  int64 `json:"rate,omitempty"`  // bytes a second since it began
	Left  int64 `json:"left,omitempty"`  // seconds at this rate
	Layer int   `json:"layer,omitempty"` // checked layers
}

// RegistryCheck is the result of a check.
type RegistryCheck struct {
	Templates int               `json:"templates"`
	Versions  int               `json:"versions"`
	Layers    int               `json:"layers"`             // that versions need, each counted once
	Bytes     int64             `json:"bytes"`              // of them
	Verified  int64             `json:"verified,omitempty"` // bytes of layers that a deep check read
	Lost      int               `json:"lost"`               // findings that a repair cannot fix
	Findings  []RegistryFinding `json:"findings"`
}

// RegistryFinding is one problem of the storage.
type RegistryFinding struct {
	Template string `json:"template,omitempty"` // directory below vm_dir
	Version  *int   `json:"version,omitempty"`  // serial number; nil: the whole template, or a layer
	Layer    string `json:"layer,omitempty"`    // name of a layer
	Problem  string `json:"problem"`
	Loss     bool   `json:"loss"` // it cannot be pulled, and a repair does not change that
}

// RegistryRepair is the result of a repair.
type RegistryRepair struct {
	Repaired []RegistryFinding     `json:"repaired"`
	SetAside []RegistryQuarantined `json:"set_aside"` // damaged data that was moved to quarantine
	Left     []RegistryFinding     `json:"left"`      // findings that remain
	Lost     int                   `json:"lost"`      // findings in Left that are losses
}

// RegistryQuarantined is a directory or a layer file that a repair moved to quarantine.
type RegistryQuarantined struct {
	What    string `json:"what"`  // the quarantined object: a template, a version or a layer
	Place   string `json:"place"` // below the storage
	Problem string `json:"problem"`
}

// RegistryGC is the result of a garbage collection or, with DryRun, of its simulation.
type RegistryGC struct {
	DryRun     bool  `json:"dry_run"`       // nothing was moved or removed
	Layers     int   `json:"layers"`        // layer files that nothing needs, moved to the trash
	Bytes      int64 `json:"bytes"`         // size of Layers: not freed until the trash is emptied
	Waiting    int   `json:"waiting"`       // unreferenced layers that a pull or a push may still need
	WaitBytes  int64 `json:"waiting_bytes"` // size of these layers
	Purged     int   `json:"purged"`        // entries of the trash that were removed permanently
	PurgedSize int64 `json:"purged_bytes"`  // bytes that their removal freed
	Trash      int64 `json:"trash"`         // bytes that are in the trash afterwards
}

// RegistryStats is the statistics of a storage: GET /registry/v2/stats. Sizes are bytes.
type RegistryStats struct {
	Templates int `json:"templates"`
	Versions  int `json:"versions"`
	Damaged   int `json:"damaged"`  // templates and versions that cannot be served completely
	Layers    int `json:"layers"`   // layer files that versions need
	Sessions  int `json:"sessions"` // pushes that are not committed

	Disks   int64 `json:"disks"`   // bytes of the disk layers that versions need
	States  int64 `json:"states"`  // bytes of the layers of saved states that versions need
	Loose   int64 `json:"loose"`   // bytes of layers that no version needs
	Uploads int64 `json:"uploads"` // bytes of unfinished pushes
	Trash   int64 `json:"trash"`   // bytes in the trash
	Aside   int64 `json:"aside"`   // bytes of damaged templates in quarantine
	Others  int64 `json:"others"`  // bytes of foreign files among the layers

	Reclaimable int64 `json:"reclaimable"` // bytes of unreferenced layers and the trash
	Reserved    int64 `json:"reserved"`    // bytes that unfinished pushes may still use
	Free        int64 `json:"free"`        // bytes free on the disk
	Total       int64 `json:"total"`       // size of the disk in bytes

	// Pulled is the total size of all versions, each counted in full. Shared is how much of that is stored once
	// for several versions.
	Pulled  int64 `json:"pulled"`
	Shared  int64 `json:"shared"`        // bytes of Pulled that are stored once for several versions
	Longest int   `json:"longest_chain"` // layers of the longest chain

	Scrub ScrubState `json:"scrub"`
}

// ScrubState is how far the verification of all layers in the background is.
type ScrubState struct {
	Rate     int64 `json:"rate"`               // bytes a second at the most; 0: off
	Verified int64 `json:"verified"`           // bytes in this round
	Began    int64 `json:"began,omitempty"`    // epoch seconds of this round
	Finished int64 `json:"finished,omitempty"` // epoch seconds of the end of the round before
	Damaged  int   `json:"damaged"`            // layers that are known to be damaged
}
