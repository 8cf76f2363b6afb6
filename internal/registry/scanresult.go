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
	// MaxDrafts bounds how many reports are received at a time: each has a compressor.
	MaxDrafts = 16
	// maxScanText bounds the names in the summary of a scan, in bytes.
	maxScanText = 100
	// maxCount bounds its counts.
	maxCount = 1_000_000_000
)

// scans holds the notes of the scan results of one template. The zero value has none.
type scans struct {
	mu sync.Mutex
	of map[string]*scanNote // by content ID; nil: a file that cannot be read
}

// scanNote is the part of scan results that is kept in memory. It is immutable.
type scanNote struct {
	api.ScanSummary
	Sum string `json:"sum"` // SHA-256 of the report in hex
}

func (s *scans) get(content string) *scanNote {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[content]
}

// summary returns the summary of the scan results for a content; nil when there are none.
func (s *scans) summary(content string) *api.ScanSummary {
	if n := s.get(content); n != nil {
		return &n.ScanSummary
	}
	return nil
}

func (s *scans) set(content string, n *scanNote) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]*scanNote{}
	}
	s.of[content] = n
}

// take replaces the notes by those of other, which no other goroutine uses.
func (s *scans) take(other *scans) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of = other.of
}

func (s *scans) remove(content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, content)
}

// stale returns the contents that no version of a template has.
func (s *scans) stale(t *layout.Template) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.of) == 0 {
		return nil
	}
	live := make(map[string]bool, len(t.Versions))
	for i := range t.Versions {
		live[t.Versions[i].ContentID] = true
	}
	var out []string
	for content := range s.of {
		if !live[content] {
			out = append(out, content)
		}
	}
	return out
}

// readScans reads the notes of a template's scan results, before any are received.
func (r *Registry) readScans(id string) *scans {
	s := &scans{}
	notes, err := r.dir.Scans(id)
	if notes != nil && err == nil {
		err = r.dir.PruneScans(id)
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
	r       *Registry
	id      string // of the template
	content string // of the version when the draft began
	file    *layout.ScanDraft
	sum     hash.Hash
	size    int64
}

var _ io.Writer = (*ScanDraft)(nil)

// DraftScan begins to receive scan results of a version.
func (r *Registry) DraftScan(ref Ref) (_ *ScanDraft, err error) {
	defer full(&err)
	if err := r.mayGrow(); err != nil {
		return nil, err
	}
	if !r.drafts.TryAcquire(1) {
		return nil, farm.Errorf(farm.CodeBusy,
			"Limit of concurrent uploads of scan reports (%d) reached; try again later", MaxDrafts)
	}
	d, err := r.draftScan(ref)
	if err != nil {
		r.drafts.Release(1)
	}
	return d, err
}

func (r *Registry) draftScan(ref Ref) (*ScanDraft, error) {
	r.write.Lock() // the directory must not be removed while a file is created in it
	defer r.write.Unlock()
	e, v, err := r.resolve(ref)
	if err != nil {
		return nil, err
	}
	file, err := r.dir.DraftScan(e.t.ID)
	if err != nil {
		return nil, err
	}
	return &ScanDraft{r: r, id: e.t.ID, content: v.ContentID, file: file, sum: sha256.New()}, nil
}

// Write appends the next bytes of the report, which together are one JSON object.
func (d *ScanDraft) Write(p []byte) (_ int, err error) {
	defer full(&err)
	if d.size += int64(len(p)); d.size > MaxScanReport {
		return 0, farm.Errorf(farm.CodeTooLarge, "The scan report has more than %d bytes", MaxScanReport)
	}
	d.sum.Write(p)
	return d.file.Write(p)
}

// Attach attaches the results to the version's content, in place of older ones. content, unless it is "", is
// what was scanned, and must be what the version had when the draft began.
func (d *ScanDraft) Attach(s api.ScanSummary, content string) (err error) {
	defer full(&err)
	if err := checkScan(&s); err != nil {
		return err
	}
	if content != "" && content != d.content {
		return farm.Errorf(farm.CodeConflict, "The content of the version has changed: %s was scanned, it now has %s",
			clip(content, 64), d.content)
	}
	n := &scanNote{ScanSummary: s, Sum: hex.EncodeToString(d.sum.Sum(nil))}
	raw, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode summary of a scan report: %w", err)
	}
	if err := d.file.Seal(raw); err != nil {
		return err
	}
	return d.r.attach(d, n)
}

func clip(s string, n int) string { return s[:min(len(s), n)] }

func (r *Registry) attach(d *ScanDraft, n *scanNote) error {
	r.write.Lock()
	defer r.write.Unlock()
	e, err := r.lookup(d.id)
	if err != nil {
		return err
	}
	if _, err := find(e.t.Versions, Ref{ContentID: d.content}); err != nil {
		return farm.Errorf(farm.CodeConflict, "The scanned version was reverted")
	}
	err = d.file.Commit(d.content)
	if errors.Is(err, fs.ErrNotExist) { // the draft was removed with the directory
		return farm.Errorf(farm.CodeConflict, "The template was deleted and pushed again: scan it again")
	}
	if err != nil {
		return err
	}
	e.scans.set(d.content, n)
	r.log.Info("scan report attached", "template", d.id, "content", d.content, "scanner", n.Scanner)
	if err := r.dropStale(e); err != nil {
		r.log.Warn("removing outdated scan reports failed", "template", d.id, "error", err)
	}
	return nil
}

// Drop ends a draft and removes unattached results.
func (d *ScanDraft) Drop() {
	d.file.Drop()
	d.r.drafts.Release(1)
}

// checkScan refuses an invalid summary and converts its times to UTC.
func checkScan(s *api.ScanSummary) error {
	for _, f := range []struct{ name, value string }{{"scanner", s.Scanner}, {"version", s.Version}} {
		if f.value == "" || !layout.ValidText(f.value, maxScanText) {
			return farm.Invalid(f.name, "must have 1 to %d bytes and no control characters", maxScanText)
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
		if f.value < 0 || f.value > maxCount {
			return farm.Invalid("counts."+f.name, "must be an integer between 0 and %d", maxCount)
		}
	}
	return nil
}

// StoredScan is scan results that are open for reading. It must be closed.
type StoredScan struct {
	api.ScanSummary
	ContentID string
	Tag       string    // names these results: others have another tag
	Report    io.Reader // one JSON object
	io.Closer
}

// Scan opens the scan results that are attached to a version; farm.CodeNotFound when there are none.
func (r *Registry) Scan(ref Ref) (*StoredScan, error) {
	e, v, err := r.resolve(ref)
	if err != nil {
		return nil, err
	}
	if e.scans.get(v.ContentID) == nil {
		return nil, farm.NotFound()
	}
	f, err := r.dir.OpenScan(e.t.ID, v.ContentID)
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
	return &StoredScan{
		ScanSummary: n.ScanSummary, ContentID: v.ContentID, Tag: hex.EncodeToString(tag[:16]),
		Report: io.LimitReader(f, MaxScanReport), Closer: f,
	}, nil
}

// RemoveScan removes the scan results that are attached to a version; farm.CodeNotFound when there are none.
func (r *Registry) RemoveScan(_ context.Context, ref Ref) error {
	r.write.Lock()
	defer r.write.Unlock()
	e, v, err := r.resolve(ref)
	if err != nil {
		return err
	}
	if !e.scans.has(v.ContentID) {
		return farm.NotFound()
	}
	if err := r.dropScan(e, v.ContentID); err != nil {
		return err
	}
	r.log.Info("scan report removed", "template", e.t.ID, "content", v.ContentID)
	return nil
}

// has reports whether a file exists for a content, even if it is damaged.
func (s *scans) has(content string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.of[content]
	return ok
}

// dropScan removes the results for a content. The caller holds write.
func (r *Registry) dropScan(e *entry, content string) error {
	if err := r.dir.RemoveScan(e.t.ID, content); err != nil {
		return err
	}
	e.scans.remove(content)
	return nil
}

// dropStale removes a template's scan results for contents that no version has. The caller holds write.
func (r *Registry) dropStale(e *entry) error {
	var errs []error
	for _, content := range e.scans.stale(e.t) {
		errs = append(errs, r.dropScan(e, content))
	}
	return errors.Join(errs...)
}

// dropStaleScans calls dropStale for all templates.
func (r *Registry) dropStaleScans() error {
	var errs []error
	for _, seen := range r.snap.Load().order {
		if len(seen.scans.stale(seen.t)) == 0 {
			continue
		}
		r.write.Lock()
		if e, err := r.lookup(seen.t.ID); err == nil {
			errs = append(errs, r.dropStale(e))
		}
		r.write.Unlock()
	}
	return errors.Join(errs...)
}
