package findings

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	// maxVersions is the number of versions whose findings are kept.
	maxVersions = 10_000
	// retention is how long findings are kept that no scanner reports again. An update of the vulnerability
	// database reports those of all versions that the scanner knows.
	retention = 90 * 24 * time.Hour
	// maxEventIDs is the number of IDs in an event.
	maxEventIDs = 100
	// maxTag is the length of a tag in bytes.
	maxTag = 255
)

// WithEvent returns a writer whose commits carry an event as well.
type WithEvent func(w store.Writer, event func() farm.Event) store.Writer

// Findings are those of all versions. They are safe for concurrent use.
type Findings struct {
	db        record.DB
	withEvent WithEvent
}

// New returns the findings in the records.
func New(db record.DB, withEvent WithEvent) *Findings { return &Findings{db, withEvent} }

// Put stores the findings in a version, in place of older ones of the same content. What was not found before
// makes an event.
func (f *Findings) Put(ctx context.Context, v api.VersionFindings) error {
	ids, err := validate(&v)
	if err != nil {
		return err
	}
	table := f.db.Tables.Findings
	old, rev, err := table.GetLinearizable(ctx, v.ContentID)
	if err != nil {
		return err
	}
	if old == nil && table.Len() >= maxVersions {
		return farm.Errorf(farm.CodeTooMany, "The findings of %d versions are stored, which is the limit", maxVersions)
	}
	if old != nil && v.Database.Before(old.Database) {
		return farm.Errorf(farm.CodeConflict, "Findings of a newer vulnerability database exist, of %s",
			old.Database.Format(time.RFC3339))
	}
	v.Vulnerabilities = ids
	w := store.Writer(f.db.Store)
	var before []string
	if old != nil {
		before = old.Vulnerabilities
	}
	if added := Added(before, ids); len(added) > 0 {
		w = f.withEvent(w, func() farm.Event {
			about := map[string]any{"template_id": v.TemplateID, "tag": v.Tag, "content_id": v.ContentID}
			return FoundEvent(about, added)
		})
	}
	next := &record.VersionFindings{VersionFindings: v, Reported: f.db.Now()}
	err = w.Commit(ctx, store.Put(table, v.ContentID, next, store.IfRev(rev)))
	if errors.Is(err, store.ErrConflict) {
		return farm.Errorf(farm.CodeConflict, "The findings of this version were changed concurrently; try again")
	}
	return err
}

// FoundEvent returns the event that vulnerabilities were found that were not there before.
func FoundEvent(about map[string]any, added []string) farm.Event {
	about["count"], about["vulnerabilities"] = len(added), added[:min(len(added), maxEventIDs)]
	return farm.Event{Name: farm.EventVulnerabilityFound, Extra: about}
}

// Added returns those of the IDs that were not there before. Both lists are in order.
func Added(before, ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		_, there := slices.BinarySearch(before, id)
		return there
	})
}

// validate checks findings, and returns the IDs in order, each once.
func validate(v *api.VersionFindings) ([]string, error) {
	v.Database = v.Database.UTC()
	id, err := uuid.Parse(v.TemplateID)
	switch {
	case err != nil:
		return nil, farm.Invalid("template_id", "must be the ID of a template")
	case v.Tag == "" || len(v.Tag) > maxTag || strings.ContainsFunc(v.Tag, isControl):
		return nil, farm.Invalid("tag", "must have 1 to %d bytes and no control characters", maxTag)
	case len(v.ContentID) != 64 || strings.Trim(v.ContentID, "0123456789abcdef") != "":
		return nil, farm.Invalid("content_id", "must be the content ID of the scanned version: 64 hex digits")
	case v.Database.IsZero():
		return nil, farm.Invalid("database", "is required: want a time such as 2026-01-31T12:00:00Z")
	case len(v.Vulnerabilities) > api.MaxVersionFindings:
		return nil, farm.Invalid("vulnerabilities", "must have at most %d IDs", api.MaxVersionFindings)
	}
	v.TemplateID = id.String()
	return SortedIDs(v.Vulnerabilities)
}

// SortedIDs returns IDs of vulnerabilities in order, each once.
func SortedIDs(list []string) ([]string, error) {
	ids := slices.Clone(list)
	for _, id := range ids {
		if id == "" || len(id) > api.MaxVulnerabilityBytes ||
			strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, farm.Invalid("vulnerabilities", "must be IDs such as CVE-2019-10744, of at most %d bytes",
				api.MaxVulnerabilityBytes)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// Affected lists what vulnerabilities affect, in no order. IDs are compared without case.
func (f *Findings) Affected(ids []string) (out api.Affected) {
	byContent := map[string]*api.AffectedVersion{}
	for _, v := range f.db.Tables.Findings.All() {
		if hit := among(v.Vulnerabilities, ids); len(hit) > 0 {
			out.Versions = append(out.Versions, api.AffectedVersion{
				TemplateID: v.TemplateID, Tag: v.Tag, ContentID: v.ContentID, Database: v.Database,
				Reported: v.Reported, Vulnerabilities: hit,
			})
		}
	}
	for i := range out.Versions {
		byContent[out.Versions[i].ContentID] = &out.Versions[i]
	}
	for id, s := range f.db.Tables.Scans.All() {
		node, _, ok := f.db.Tables.Nodes.Get(id)
		if hit := among(s.Vulnerabilities, ids); ok && len(hit) > 0 {
			out.Nodes = append(out.Nodes,
				api.AffectedNode{NodeID: id, Name: node.Name, Scanned: s.Scanned, Vulnerabilities: hit})
		}
	}
	if len(byContent) == 0 {
		return out
	}
	for id, i := range f.db.Tables.Instances.All() {
		if v := byContent[i.Template.ContentID]; v != nil && i.State != farm.Terminated {
			out.Instances = append(out.Instances, api.AffectedInstance{
				ID: id, Name: i.Name, State: string(i.State), NodeID: i.NodeID, TemplateID: i.Template.ID,
				Tag: i.Template.Tag, Vulnerabilities: v.Vulnerabilities,
			})
		}
	}
	return out
}

// among returns those of a list that are requested.
func among(list, ids []string) (hit []string) {
	for _, have := range list {
		if slices.ContainsFunc(ids, func(id string) bool { return strings.EqualFold(id, have) }) {
			hit = append(hit, have)
		}
	}
	return hit
}

// Prune removes findings that no scanner has reported for long.
func (f *Findings) Prune(ctx context.Context, w *record.Term, now time.Time) error {
	for content, v := range f.db.Tables.Findings.All() {
		if now.Sub(v.Reported) <= retention {
			continue
		}
		_, rev, err := f.db.Tables.Findings.GetLinearizable(ctx, content)
		if err == nil && rev != 0 {
			err = w.Commit(ctx, store.Delete(f.db.Tables.Findings, content, store.IfRev(rev)))
		}
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return nil
}
