package api

import "encoding/json"

// The wire of push and pull. One negotiation covers any number of files; bulk bytes travel outside of
// the envelope. docs/reference/layer-format.md has the byte forms of layer files and of parts.

// The versions of the wire of push and pull. Clients send theirs in TransferHeader with each request; one without it
// is of version 1. A registry refuses a newer and an older one.
const (
	TransferHeader         = "Buildyard-Transfer"
	TransferProtocol       = 1 // sent by clients
	OldestTransferProtocol = 1 // of clients of the release before
)

// Kinds of a file in PushFile and PullFile.
const (
	FileDisk  = "disk"  // a VM disk: layer file in images_dir
	FileState = "state" // a saved state: layer file in state_file_dir
)

// States of a file in PushFileState.
const (
	PushExists   = "exists"   // the registry holds this layer: send nothing
	PushMissing  = "missing"  // nothing of it is here
	PushResume   = "resume"   // the parts in Have are here
	PushComplete = "complete" // all parts and the index are here
)

// PushRequest opens a push: POST /registry/v2/push.
type PushRequest struct {
	// ID is the template's UUID. A known id gets the next tag, an unknown one becomes a new template
	// called Name; an empty id makes a new template with an id chosen by the registry.
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"` // of a new template
	// MustExist refuses the push when ID is unknown (push of an independent VM as the next tag).
	MustExist   bool   `json:"must_exist,omitempty"`
	Tag         string `json:"tag"`
	Description string `json:"description,omitempty"`
	Arch        string `json:"arch,omitempty"` // "amd64", "arm64" or ""
	// Gen is the generation of the template that the push expects; the commit is refused after another write.
	// nil: no such condition.
	Gen *int64 `json:"gen,omitempty"`
	// Revert is carried out in the same swap that publishes the new version.
	Revert *PushRevert `json:"revert,omitempty"`
	// Config is the configuration object (see TemplateConfig); the registry sets its uuid and name.
	Config json.RawMessage `json:"config"`
	NVRAM  []byte          `json:"nvram,omitempty"` // at most 4 MiB, standard base64 in JSON
	Files  []PushFile      `json:"files"`
	// ResumeKey is chosen by the client. A later negotiation with the same key and the same files
	// gets the same session and continues where it ended. Empty: always a new session.
	ResumeKey string `json:"resume_key,omitempty"`
}

// PushRevert removes a version and all newer ones before the new one is added. An unknown tag means no
// revert; an empty tag means the latest version.
type PushRevert struct {
	Tag string `json:"tag,omitempty"` // tag of the oldest removed version; "": the latest
}

// PushFile announces one file of a push.
type PushFile struct {
	Name   string `json:"name"`             // [A-Za-z0-9._-], at most 128 bytes, unique in the push
	Kind   string `json:"kind"`             // FileDisk or FileState
	Format string `json:"format,omitempty"` // "raw", "qcow2", FormatAnka or ""
	Size   int64  `json:"size"`             // bytes of the file itself
	// Root names the content when the client knows it: its layer, or the ID of its chain. If the registry has
	// it, the file is not sent.
	Root string `json:"root,omitempty"` // digest or chain ID of the content, if known to the client
	// Parent is the ID of the chain that the layer of a disk rests on, which the layer's index names as its
	// parent. The version gets that chain with the layer on top of it. Empty: the layer rests on zeros. If the
	// registry does not have the parent, it refuses the push with status 412: send the disk as a whole.
	Parent string `json:"parent,omitempty"`
	// Data is the maximum number of bytes of the file's data: the registry reserves space for them. 0: unknown
	// to the sender, and the registry reserves a twentieth of Size.
	Data int64 `json:"data,omitempty"`
}

// PushSession answers POST /registry/v2/push and GET /registry/v2/push/{session}.
type PushSession struct {
	Session  string          `json:"session"` // ID of the push session
	ID       string          `json:"id"`      // template id that the commit will write to
	Files    []PushFileState `json:"files"`
	PartMax  int64           `json:"part_max"` // most frame bytes in one part
	Parallel int             `json:"parallel"` // parts that the client should have in flight
	Expires  int64           `json:"expires"`  // epoch seconds; every part moves it
	// PeerSums reports that layers are to have the sums by which nodes verify what they read from each other.
	PeerSums bool `json:"peer_sums,omitempty"`
}

// PushFileState describes what the registry has of one file.
type PushFileState struct {
	Name  string     `json:"name"`
	State string     `json:"state"`          // PushExists, PushMissing, PushResume or PushComplete
	Have  []PushPart `json:"have,omitempty"` // parts that the registry has received
}

// PushPart is a verified part: Offset and Length in the layer file, Sum the sha256 (hex) of the
// sha256 values of its frames, one after the other.
type PushPart struct {
	Offset int64  `json:"off"` // in the layer file, in bytes
	Length int64  `json:"len"` // bytes
	Sum    string `json:"sum"` // SHA-256 of its frame digests, in hex
}

// PushCommit publishes the version: POST /registry/v2/push/{session}/commit. It may be repeated; the
// answer is the same.
type PushCommit struct {
	Roots map[string]string `json:"roots"`         // file name -> root of its layer
	Gen   *int64            `json:"gen,omitempty"` // replaces the Gen of the request
}

// PushResult is the published version.
type PushResult struct {
	ID        string `json:"id"`   // of the template
	Name      string `json:"name"` // of the template
	Tag       string `json:"tag"`
	Number    int    `json:"number"` // serial number of the version, 0-indexed
	ContentID string `json:"content_id"`
	Gen       int64  `json:"gen"`  // generation of the template after the push
	Size      int64  `json:"size"` // stored bytes of the version
}

// PullManifest answers GET /registry/v2/pull?id=&tag=|version=: everything needed to build the version. With
// look=true the request does not count as a pull: its time is not recorded, and its layers are not kept.
type PullManifest struct {
	ID        string          `json:"id"`   // of the template
	Name      string          `json:"name"` // of the template
	Arch      string          `json:"arch"`
	Gen       int64           `json:"gen"` // generation of the template
	ContentID string          `json:"content_id"`
	Version   TemplateVersion `json:"version"`
	Config    json.RawMessage `json:"config"` // the TemplateConfig of the version
	NVRAM     []byte          `json:"nvram,omitempty"`
	Files     []PullFile      `json:"files"`
	Lease     int64           `json:"lease"` // seconds that the layers stay after the last range request
}

// PullFile is one file of the version. Its layers are applied in order, the first against zeros.
type PullFile struct {
	Name   string      `json:"name"`
	Kind   string      `json:"kind"` // FileDisk or FileState
	Format string      `json:"format,omitempty"`
	Size   int64       `json:"size"`   // bytes of the file itself
	Layers []PullLayer `json:"layers"` // in the order in which they are applied
	// Trace is the frames that VMs of several nodes read first, in that order, numbered as those of a FileTrace. It is
	// empty until two nodes have sent the same. It is a hint: what it names need not exist.
	Trace []int `json:"trace,omitempty"`
}

// BootTrace is what a VM read of its disks until shortly after its boot: PUT /registry/v2/pull/trace. The registry
// keeps the newest three of a version, one per sender.
type BootTrace struct {
	ID        string               `json:"id"`         // of the template
	ContentID string               `json:"content_id"` // of the version
	Files     map[string]FileTrace `json:"files"`      // by name
}

// FileTrace is the frames of one file that were read, in the order of their first read.
type FileTrace struct {
	Roots []string `json:"roots"` // the file's layers, in the order of PullFile.Layers
	// Frames are numbered over all layers: the first frame of the first layer is 0. There are 1 to 4,096.
	Frames []int `json:"frames"`
}

// PullLayer describes where a layer file's bytes are. The index is the range IndexOffset, IndexLength.
type PullLayer struct {
	Root string `json:"root"` // digest of the layer
	// Tip names the content of the chain up to this layer, when that is not Root: the layer squashes a chain of
	// that name.
	Tip         string `json:"tip,omitempty"`
	Size        int64  `json:"size"`      // bytes of the whole layer file
	IndexOffset int64  `json:"index_off"` // of the frame index in the layer file, in bytes
	IndexLength int64  `json:"index_len"` // bytes of the frame index
	// URLs are equivalent sources, absolute or relative to the registry's address. They accept bounded Range
	// requests.
	URLs []string `json:"urls"`
}
