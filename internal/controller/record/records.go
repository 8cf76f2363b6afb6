package record

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// RemovedNode is the record of a node that was removed, so that its agent learns that and is not
// merely unknown.
type RemovedNode struct {
	Credential string    `json:"credential"` // digest
	At         time.Time `json:"at"`
}

// JoinToken is a secret with which machines become nodes.
type JoinToken struct {
	Digest      string    `json:"digest"` // SHA-256 of the secret in hex
	Created     time.Time `json:"created"`
	CreatedBy   string    `json:"created_by,omitempty"` // name of the caller
	Description string    `json:"description,omitempty"`
	Expires     time.Time `json:"expires,omitzero"` // zero: it does not
	Once        bool      `json:"once,omitempty"`   // it registers one node
	Permanent   bool      `json:"permanent,omitempty"`
	// Epoch is that of the store when the token was created. One of another epoch came out of a backup.
	Epoch string `json:"epoch"`
}

// Setting is a value that the controller stores for itself.
type Setting struct {
	Value       string       `json:"value,omitempty"`
	Maintenance *Maintenance `json:"maintenance,omitempty"`
	Deletion    *Deletion    `json:"deletion,omitempty"`
}

// Deletion is the record of a template's deletion while the registry is asked for it, which is
// outside of the store's transactions. If this process dies in between, the event is written later.
type Deletion struct {
	Template string     `json:"template"`
	At       time.Time  `json:"at"`
	By       farm.Actor `json:"by,omitzero"`
}

// MaxSaveOutput is how many bytes of stdout and of stderr of a save are stored, the last ones.
const MaxSaveOutput = 1 << 20

// StatusChange is what a status that a node reports changes of the records.
type StatusChange int

// The changes.
const (
	NoChange    StatusChange = iota
	Description              // texts, numbers, progress
	Transition               // all else: written immediately
)

// SaveChunk is a part of a save request that is stored separately because of its size: its script,
// or some of the script's output. Its id begins with that of the request.
type SaveChunk struct {
	Made time.Time `json:"made"`
	Data []byte    `json:"data"` // any bytes; of a script: a secret
}

// ReleasedOrphan is an operator's decision that an orphaned VM is removed in spite of the guard.
type ReleasedOrphan struct {
	At time.Time `json:"at"`
}

// EventBatch is the events of one transaction: their records, as lines.
type EventBatch struct{ Lines [][]byte }

// IdempotencyRecord is the stored result of a request with an idempotency key.
type IdempotencyRecord struct {
	Caller string          `json:"caller,omitempty"`
	Digest string          `json:"digest"`
	Answer json.RawMessage `json:"answer"`
	At     time.Time       `json:"at"`
	// Instances are those of a start that has not ended: it takes several transactions, of which
	// this record is part of the first.
	Instances []string `json:"instances,omitempty"`
}

// NodeScan is the record of the last results of the host scanner on a node. The results are in a
// file; the record names one of the two file names of a node, so that a new file is complete before
// the old one is replaced.
type NodeScan struct {
	api.NodeScanSummary
	Place string `json:"place"`
	Sum   string `json:"sum"` // SHA-256 of the file in hex
	// Found is what vulntext.EncodeSome returned for the results; Truncated says that some are left out.
	Found     string `json:"found,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

// VersionFindings is the record of what a scan found in a version of a template. Its ID is that of the template and
// the content ID, with a slash between them.
type VersionFindings struct {
	TemplateID string    `json:"template_id"`
	Tag        string    `json:"tag"`
	ContentID  string    `json:"content_id"`
	Database   time.Time `json:"database"`
	Reported   time.Time `json:"reported"`
	Partial    bool      `json:"partial,omitempty"`   // no scan read the whole version
	Truncated  bool      `json:"truncated,omitempty"` // there are more vulnerabilities
	Removed    time.Time `json:"removed,omitzero"`    // when the registry was found to lack the version
	Sum        string    `json:"sum,omitempty"`       // of the last report
	Found      string    `json:"found"`               // vulntext.Encode made it: a text takes less memory than a list
}

// KnownTemplate is the last known state of a template at the registry. Starts use it while the
// registry cannot be reached.
type KnownTemplate struct {
	Name     string             `json:"name"`
	Versions []farm.TemplateRef `json:"versions"` // resolved, oldest first
	Changed  time.Time          `json:"changed"`  // when this record was written
}

// Script is the startup script of the instances of one request. It is written in the transactions
// that create them and deleted with the last of them. The table in memory does not keep its text.
type Script struct {
	Caller string `json:"caller,omitempty"` // the caller whose limits it counts against
	Size   int    `json:"size"`             // bytes of Text
	Text   []byte `json:"text,omitempty"`   // any bytes; a secret
}

// Detail returns the known state in the form of a registry's response.
func (k *KnownTemplate) Detail(id string) api.TemplateDetail {
	d := api.TemplateDetail{Template: api.Template{ID: id, Name: k.Name}}
	for _, v := range k.Versions {
		d.Versions = append(d.Versions, api.TemplateVersion{Tag: v.Tag, Number: v.Version, ContentID: v.ContentID})
	}
	return d
}

// Version returns the known version with a content id.
func (k *KnownTemplate) Version(contentID string) (farm.TemplateRef, bool) {
	if k == nil || contentID == "" {
		return farm.TemplateRef{}, false
	}
	i := slices.IndexFunc(k.Versions, func(v farm.TemplateRef) bool { return v.ContentID == contentID })
	if i < 0 {
		return farm.TemplateRef{}, false
	}
	return k.Versions[i], true
}
