package transfer

import (
	"os"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
)

// Progress is the state of a transfer in bytes. A pull counts bytes of layer files (compressed). A push, whose
// compressed size is only known at its end, counts the bytes that it reads of the files, without holes.
type Progress struct {
	Done  int64
	Total int64
	Rate  float64 // bytes a second over the last few seconds, without bytes that were here before
}

// Fraction is Done of Total, 0 to 1.
func (p Progress) Fraction() float64 {
	if p.Total <= 0 {
		return 0
	}
	return min(1, float64(p.Done)/float64(p.Total))
}

// PushOptions describe a version to publish.
type PushOptions struct {
	// Request holds id, name, tag, description, arch, configuration, nvram and the conditions. Its
	// Files are filled in from Files, and its ResumeKey, when empty, from host, paths, sizes and times.
	Request api.PushRequest
	Files   []PushFile
	// LayerDigests, when not nil, receives the digest of each file's layer, by the file's name.
	LayerDigests map[string]string
	// Workers is the number of goroutines that compress; 0 means one for each processor, at most 4.
	Workers int
	// Progress is called at most four times a second and once at the end, from one goroutine at a
	// time.
	Progress func(Progress)
	// BeforePublish, when not nil, is called when all is sent and nothing is published: its error ends the push.
	BeforePublish func() error
	// AbandonOnFailure is called when the push has failed. If it returns true, the registry removes what it has
	// received, which otherwise stays resumable for a day. nil keeps it.
	AbandonOnFailure func(failure error) bool
}

// PushFile is one local file of a push.
type PushFile struct {
	Name    string // name in the version; a pull uses it, too
	Path    string // must not change during the push
	Kind    string // api.FileDisk or api.FileState
	Format  string // "raw", "qcow2" or ""
	ChainID string // name of its content when known from an earlier pull or push and unchanged since
	// Disk, when not nil, is the content of the file: the registry receives it as a guest sees it, and Path and
	// Format are ignored.
	Disk *diskfile.Disk
	// Parent, when not nil, is what Disk was made from: only changes are sent. A registry without the parent
	// receives the whole disk.
	Parent *PushParent
}

// PushParent describes the content that a disk was made from.
type PushParent struct {
	ChainID string // name of the parent's content
	// Disk, when not nil, is the parent's disk: changes are found by comparison. Otherwise the first Files
	// files of the disk are the parent's, and the others contain the changes.
	Disk      *diskfile.Disk
	FileCount int
	// ChecksumFile, when not "", is a file that Copy made of the parent's disk: changes are found by comparison with
	// it, and Disk and Files are ignored.
	ChecksumFile string
}

// PullOptions describe a pull and its directory.
type PullOptions struct {
	Ref VersionRef
	// Dir is an existing directory that receives the files: those of the version under their names,
	// "config.json" and, if present, "nvram". An interrupted pull of the same version in it is resumed.
	Dir string
	// LocalContent maps names of contents to disks and files of this host: complete ones that no longer change. Data
	// that the version shares with them is not transferred.
	LocalContent map[string]diskfile.Disk
	// AfterClone, when not nil, is called after a file was cloned from content of Have. It reports whether Have
	// still describes that content. Its error ends the pull, and the clone is not resumed.
	AfterClone func(tip string) error
	// AllowOverlays allows to build a disk as an overlay on one of Have, where the file system cannot clone that.
	// Otherwise such a disk is moved as a whole.
	AllowOverlays bool
	// Peers are other nodes that have parts of the version; nil: all comes from the registry.
	Peers Peers
	// OnPartial, when not nil, is called when the files are open: peers may read them while the pull runs.
	OnPartial func(*Partial)
	// Progress is called at most four times a second and once at the end, from one goroutine at a time.
	Progress func(Progress)
	// Sync replaces fsync of an open file or directory in tests. nil: fsync.
	Sync func(*os.File) error
}

// Names of the files that a pull writes in addition to those of the version.
const (
	ConfigFile = "config.json"
	NVRAMFile  = "nvram"
)

// PullResult is the result of a pull.
type PullResult struct {
	Manifest         api.PullManifest
	TransferredBytes int64 // bytes of layer files from the registry: frames and indexes; also of a failed pull
	PeerBytes        int64 // decoded bytes from peers; also of a failed pull
	Files            []BuiltFile
}

// FileForm is the form in which a file of a version was built.
type FileForm string

// The forms.
const (
	FormFlat    FileForm = "flat"    // the bytes of a disk or of another file, nothing else
	FormOverlay FileForm = "overlay" // a qcow2 overlay with the changes against a disk of PullOptions.Have
	FormLinked  FileForm = "linked"  // a link to the last file of the content in PullOptions.Have under Tip
)

// BuiltFile is a file that a pull built.
type BuiltFile struct {
	Name          string
	Form          FileForm
	ChainID       string // name of the content
	ParentChainID string // of an overlay: name of the parent content in PullOptions.Have
}
