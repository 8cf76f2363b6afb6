package lazyfill

import (
	"cmp"
	"errors"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Phase is how far a process is.
type Phase string

// The phases.
const (
	Opening  Phase = "opening"  // it fetches what must be here before a VM starts
	Serving  Phase = "serving"  // VMs may start
	Complete Phase = "complete" // all files are here under their names
	Failed   Phase = "failed"   // it cannot continue; State.Error says why
)

// State is what a process tells the agent.
type State struct {
	PID      int             `json:"pid"`
	Phase    Phase           `json:"phase"`
	Error    string          `json:"error,omitempty"`
	Class    string          `json:"class,omitempty"` // of the failure: a farm.FailureClass
	Progress float64         `json:"progress"`        // 0 to 1, of all that is pulled
	Rate     float64         `json:"rate"`            // bytes a second
	Disks    map[string]Disk `json:"disks,omitempty"`
	Files    map[string]File `json:"files,omitempty"` // of a complete pull
	VMs      map[string]VM   `json:"vms,omitempty"`
	Fetched  int64           `json:"fetched"` // bytes from the registry by this process
	// PeerBytes are bytes from other nodes by this process.
	PeerBytes int64 `json:"peer_bytes,omitempty"`
	// Excluded are IDs of nodes that have sent wrong bytes.
	Excluded []string `json:"excluded,omitempty"`
	// Waits is, for VMs with reads that wait, since when none of their reads was answered.
	Waits map[string]time.Time `json:"waits,omitempty"`
	// Waiting is since when fetches fail; zero: they do not. Problem is why.
	Waiting time.Time `json:"waiting,omitzero"`
	Problem string    `json:"problem,omitempty"`
	// Unauthorized reports that the registry refused the token, or that there is none.
	Unauthorized bool `json:"unauthorized,omitempty"`
}

// Failure returns why the process has failed, with the class of the failure; nil: it has not.
func (s State) Failure() error {
	if s.Phase != Failed {
		return nil
	}
	return farm.MarkFailure(errors.New(s.Error), cmp.Or(farm.FailureClass(s.Class), farm.FailureUnknown), farm.StepPull)
}

// Disk is a disk that VMs may read.
type Disk struct {
	Bytes   int64 `json:"bytes"` // stored bytes that are here
	Total   int64 `json:"total"`
	Size    int64 `json:"size"`    // of the disk
	Readers int   `json:"readers"` // reads that wait
	Read    int   `json:"read"`    // frames that VMs have read
	// ReadBytes is the stored bytes of these frames.
	ReadBytes int64 `json:"read_bytes"`
}

// File is a file of a complete pull, as transfer.BuiltFile describes it.
type File struct {
	ChainID string `json:"chain"`
	Format  string `json:"format,omitempty"`
}
