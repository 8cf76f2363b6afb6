package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

const (
	// MaxScanReport is the largest report of a scan in bytes.
	MaxScanReport = 32 << 20
	// MaxScanUploads bounds how many reports are received at a time: each has a compressor.
	MaxScanUploads = 16
	// maxScanTextBytes bounds the names in the summary of a scan, in bytes.
	maxScanTextBytes = 100
	// maxScanCount bounds its counts.
	maxScanCount = 1_000_000_000
)

// scanNotes holds the notes of the scan results of one template. The zero value has none.
type scanNotes struct {
	mu        sync.Mutex
	byContent map[string]*scanNote // by content ID; nil: a file that cannot be read
}

// scanNote is the part of scan results that is kept in memory. It is immutable.
type scanNote struct {
	api.ScanSummary
	Sum string `json:"sum"` // SHA-256 of the report in hex
}

func (s *scanNotes) get(content string) *scanNote {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byContent[content]
}

// summary returns the summary of the scan results for a content; nil when there are none.
func (s *scanNotes) summary(content string) *api.ScanSummary {
	if n := s.get(content); n != nil {
		return &n.ScanSummary
	}
	return nil
}

func (s *scanNotes) set(content string, n *scanNote) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byContent == nil {
		s.byContent = map[string]*scanNote{}
	}
	s.byContent[content] = n
}

// replaceWith replaces the notes by those of other, which no other goroutine uses.
func (s *scanNotes) replaceWith(other *scanNotes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byContent = other.byContent
}

func (s *scanNotes) remove(content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byContent, content)
}

// staleContents returns the contents that no version of a template has.
func (s *scanNotes) staleContents(t *layout.Template) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byContent) == 0 {
		return nil
	}
	live := make(map[string]bool, len(t.Versions))
	for i := range t.Versions {
		live[t.Versions[i].ContentID] = true
	}
	var out []string
	for content := range s.byContent {
		if !live[content] {
			out = append(out, content)
		}
	}
	return out
}

// readScanNotes reads the notes of a template's scan results, before any are received.
func (r *Registry) readScanNotes(id string) *scanNotes {
	s := &scanNotes{}
	notes, err := r.dir.ScanNotes(id)
	if notes != nil && err == nil {
		err = r.dir.PruneScanDrafts(id)
	}
	if err != nil {
		r.log.Warn("reading stored scan reports failed", "template", id, "error", err)
	}
	for content, raw := range notes {
		n := &scanNote{}
		if err := json.Unmarshal(raw, n); err != nil {
			r.log.Warn("damaged scan report: scan the version again", "template", id, "content", content,
				"error", err)
			n = nil
		}
		s.set(content, n)
	}
	return s
}

// ScanDraft is scan results that are being received. One goroutine uses it: it writes the report, calls Attach,
// and Drop in any case.
type ScanDraft struct {
	registry   *Registry
	templateID string // of the template
	contentID  string // of the version when the draft began
	draft      *layout.ScanDraft
	hash       hash.Hash
	size       int64
}

var _ io.Writer = (*ScanDraft)(nil)

// BeginScanUpload begins to receive scan results of a version.
func (r *Registry) BeginScanUpload(ref VersionRef) (_ *ScanDraft, err error) {
	defer setDiskFull(&err)
	if err := r.refuseWhenFull(); err != nil {
		return nil, err
	}
	if !r.scanUploads.TryAcquire(1) {
		return nil, farm.Errorf(farm.CodeBusy,
			"Limit of concurrent uploads of scan reports (%d) reached; try again later", MaxScanUploads)
	}
	d, err := r.beginScanUpload(ref)
	if err != nil {
		r.scanUploads.Release(1)
	}
	return d, err
}

func (r *Registry) beginScanUpload(ref VersionRef) (*ScanDraft, error) {
	r.metadataMu.Lock() // the directory must not be removed while a file is created in it
	defer r.metadataMu.Unlock()
	e, v, err := r.resolveVersion(ref)
	if err != nil {
		return nil, err
	}
	file, err := r.dir.CreateScanDraft(e.template.ID)
	if err != nil {
		return nil, err
	}
	return &ScanDraft{registry: r, templateID: e.template.ID, contentID: v.ContentID, draft: file, hash: sha256.New()},
		nil
}

// Write appends the next bytes of the report, which together are one JSON object.
func (d *ScanDraft) Write(p []byte) (_ int, err error) {
	defer setDiskFull(&err)
	if d.size += int64(len(p)); d.size > MaxScanReport {
		return 0, farm.Errorf(farm.CodeTooLarge, "The scan report has more than %d bytes", MaxScanReport)
	}
	d.hash.Write(p)
	return d.draft.Write(p)
}

// Attach attaches the results to the version's content, in place of older ones. content, unless it is "", is
// what was scanned, and must be what the version had when the draft began.
func (d *ScanDraft) Attach(s api.ScanSummary, content string) (err error) {
	defer setDiskFull(&err)
	if err := checkScanSummary(&s); err != nil {
		return err
	}
	if content != "" && content != d.contentID {
		return farm.Errorf(farm.CodeConflict, "The content of the version has changed: %s was scanned, it now has %s",
			truncate(content, 64), d.contentID)
	}
	n := &scanNote{ScanSummary: s, Sum: hex.EncodeToString(d.hash.Sum(nil))}
	raw, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode summary of a scan report: %w", err)
	}
	if err := d.draft.Finish(raw); err != nil {
		return err
	}
	return d.registry.attachScan(d, n)
}

func truncate(s string, n int) string { return s[:min(len(s), n)] }

func (r *Registry) attachScan(d *ScanDraft, n *scanNote) error {
	r.metadataMu.Lock()
	defer r.metadataMu.Unlock()
	e, err := r.findTemplate(d.templateID)
	if err != nil {
		return err
	}
	if _, err := findVersion(e.template.Versions, VersionRef{ContentID: d.contentID}); err != nil {
		return farm.Errorf(farm.CodeConflict, "The scanned version was reverted")
	}
	err = d.draft.Commit(d.contentID)
	if errors.Is(err, fs.ErrNotExist) { // the draft was removed with the directory
		return farm.Errorf(farm.CodeConflict, "The template was deleted and pushed again: scan it again")
	}
	if err != nil {
		return err
	}
	e.scans.set(d.contentID, n)
	r.log.Info("scan report attached", "template", d.templateID, "content", d.contentID, "scanner", n.Scanner)
	if err := r.removeStaleScansOf(e); err != nil {
		r.log.Warn("removing outdated scan reports failed", "template", d.templateID, "error", err)
	}
	return nil
}

// Discard ends a draft and removes unattached results.
func (d *ScanDraft) Discard() {
	d.draft.Discard()
	d.registry.scanUploads.Release(1)
}

// checkScanSummary refuses an invalid summary and converts its times to UTC.
func checkScanSummary(s *api.ScanSummary) error {
	for _, f := range []struct{ name, value string }{{"scanner", s.Scanner}, {"version", s.Version}} {
		if f.value == "" || !layout.ValidText(f.value, maxScanTextBytes) {
			return farm.Invalid(f.name, "must have 1 to %d bytes and no control characters", maxScanTextBytes)
		}
	}
	for _, f := range []struct {
		name  string
		value *time.Time
	}{{"database", &s.Database}, {"scanned", &s.Scanned}} {
		if f.value.IsZero() {
			return farm.Invalid(f.name, "is required: want a time such as 2026-01-31T12:00:00Z")
		}
		*f.value = f.value.UTC().Truncate(time.Second)
	}
	c := s.Counts
	for _, f := range []struct {
		name  string
		value int
	}{
		{"critical", c.Critical},
		{"high", c.High},
		{"medium", c.Medium},
		{"low", c.Low},
		{"unknown", c.Unknown},
		{"packages", c.Packages},
	} {
		if f.value < 0 || f.value > maxScanCount {
			return farm.Invalid("counts."+f.name, "must be an integer between 0 and %d", maxScanCount)
		}
	}
	return nil
}

// ScanResult is scan results that are open for reading. It must be closed.
type ScanResult struct {
	api.ScanSummary
	ContentID string
	ETag      string    // names these results: others have another tag
	Report    io.Reader // one JSON object
	io.Closer
}

// OpenScan opens the scan results that are attached to a version; farm.CodeNotFound when there are none.
func (r *Registry) OpenScan(ref VersionRef) (*ScanResult, error) {
	e, v, err := r.resolveVersion(ref)
	if err != nil {
		return nil, err
	}
	if e.scans.get(v.ContentID) == nil {
		return nil, farm.NotFound()
	}
	f, err := r.dir.OpenScanReport(e.template.ID, v.ContentID)
	switch {
	case errors.Is(err, fs.ErrNotExist): // removed since then
		return nil, farm.NotFound()
	case err != nil:
		return nil, err
	}
	var n scanNote
	if err := json.Unmarshal(f.Note, &n); err != nil {
		return nil, errors.Join(fmt.Errorf("parse summary of a scan report: %w", err), f.Close())
	}
	tag := sha256.Sum256(append(f.Note, v.ContentID...))
	return &ScanResult{
		ScanSummary: n.ScanSummary, ContentID: v.ContentID, ETag: hex.EncodeToString(tag[:16]),
		Report: io.LimitReader(f, MaxScanReport), Closer: f,
	}, nil
}

// RemoveScan removes the scan results that are attached to a version; farm.CodeNotFound when there are none.
func (r *Registry) RemoveScan(_ context.Context, ref VersionRef) error {
	r.metadataMu.Lock()
	defer r.metadataMu.Unlock()
	e, v, err := r.resolveVersion(ref)
	if err != nil {
		return err
	}
	if !e.scans.has(v.ContentID) {
		return farm.NotFound()
	}
	if err := r.removeScan(e, v.ContentID); err != nil {
		return err
	}
	r.log.Info("scan report removed", "template", e.template.ID, "content", v.ContentID)
	return nil
}

// has reports whether a file exists for a content, even if it is damaged.
func (s *scanNotes) has(content string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.byContent[content]
	return ok
}

// removeScan removes the results for a content. The caller holds write.
func (r *Registry) removeScan(e *templateEntry, content string) error {
	if err := r.dir.RemoveScanReport(e.template.ID, content); err != nil {
		return err
	}
	e.scans.remove(content)
	return nil
}

// removeStaleScansOf removes a template's scan results for contents that no version has. The caller holds write.
func (r *Registry) removeStaleScansOf(e *templateEntry) error {
	var errs []error
	for _, content := range e.scans.staleContents(e.template) {
		errs = append(errs, r.removeScan(e, content))
	}
	return errors.Join(errs...)
}

// removeStaleScans calls removeStaleScansOf for all templates.
func (r *Registry) removeStaleScans() error {
	var errs []error
	for _, seen := range r.snapshot.Load().sorted {
		if len(seen.scans.staleContents(seen.template)) == 0 {
			continue
		}
		r.metadataMu.Lock()
		if e, err := r.findTemplate(seen.template.ID); err == nil {
			errs = append(errs, r.removeStaleScansOf(e))
		}
		r.metadataMu.Unlock()
	}
	return errors.Join(errs...)
}
