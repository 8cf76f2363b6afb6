package transfer

import (
	"time"

	"github.com/buildyard/buildyard/api"
)

// Progress is the state of a push or pull. Bytes are bytes of layer files (compressed).
type Progress struct {
	Done  int64
	Total int64   // grows during a push of files whose compressed size is not known yet
	Rate  float64 // bytes a second over the last few seconds
}

// Fraction is Done of Total, 0 to 1.
func (p Progress) Fraction() float64 {
	if p.Total <= 0 {
		return 0
	}
	return min(1, float64(p.Done)/float64(p.Total))
}

// progressEvery bounds how often a progress callback is called.
const progressEvery = 250 * time.Millisecond

// PushOptions describe a version to publish. (*Client).Push(ctx, PushOptions) (api.PushResult, error).
type PushOptions struct {
	// Request holds id, name, tag, description, arch, configuration, nvram and the conditions. Its
	// Files are filled in from Files.
	Request api.PushRequest
	Files   []PushFile
	// Workers is the number of goroutines that compress; 0 means one for each processor, at most 4.
	Workers int
	// Progress is called at most four times a second and once at the end, from one goroutine at a
	// time. Done and Total count bytes of the files here.
	Progress func(Progress)
}

// PushFile is one local file of a push.
type PushFile struct {
	Name   string // name in the version; also the name that a pull gives it
	Path   string // where it is; not changed by anybody during the push
	Kind   string // api.FileDisk or api.FileState
	Format string // "raw", "qcow2" or ""
	Root   string // name of its layer when known from an earlier pull or push and unchanged since
}

// PullOptions say what to pull where. (*Client).Pull(ctx, PullOptions) (PullResult, error).
type PullOptions struct {
	Ref Ref
	// Dir is an existing folder that gets the files: those of the version under their names,
	// "config.json" and, when there is one, "nvram". What an interrupted pull of the same version
	// left there is gone on with.
	Dir string
	// Progress is called at most four times a second and once at the end, from one goroutine at a time.
	Progress func(Progress)
}

// Names of the files that a pull writes beside those of the version.
const (
	ConfigFile = "config.json"
	NVRAMFile  = "nvram"
)

// PullResult is what a pull left in its folder.
type PullResult struct {
	Manifest api.PullManifest
	Bytes    int64 // bytes of layer files that were moved
}
