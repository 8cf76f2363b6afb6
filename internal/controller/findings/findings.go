package findings

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/vulntext"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	// maxVersions and maxTotalText limit what is kept: versions, and the bytes of their lines.
	maxVersions  = 10_000
	maxTotalText = 64 << 20
	// retention is how long findings are kept that no scanner reports again. A scanner reports those of all
	// versions that it knows at least every week, as long as its database is updated.
	retention = 90 * 24 * time.Hour
	// maxTag is the length of a tag in bytes.
	maxTag = 255
	// contentIDDigits is the length of a content ID.
	contentIDDigits = 64
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

// key returns the ID of the record of a version.
func key(template, content string) string { return template + "/" + content }

// Put stores the findings in a version, in place of older ones of the same content of the template. What was not
// found before makes an event. No findings remove the record.
func (f *Findings) Put(ctx context.Context, v api.VersionFindings) error {
	next, err := f.newRecord(v)
	if err != nil {
		return err
	}
	table, id := f.db.Tables.Findings, key(next.TemplateID, next.ContentID)
	old, rev, err := table.GetLinearizable(ctx, id)
	if err != nil {
		return err
	}
	before := ""
	if old != nil {
		before = old.Found
		if next.Database.Before(old.Database) {
			return farm.Errorf(farm.CodeConflict, "Findings of a newer vulnerability database exist, of %s",
				old.Database.Format(time.RFC3339))
		}
	}
	if next.Found == "" {
		return f.remove(ctx, f.db.Store, id, rev)
	}
	if err := f.checkLimits(before, next.Found); err != nil {
		return err
	}
	w := store.Writer(f.db.Store)
	if added := vulntext.Added(before, next.Found); len(added) > 0 {
		w = f.withEvent(w, func() farm.Event {
			return vulntext.FoundEvent(map[string]any{
				"template_id": next.TemplateID, "tag": next.Tag, "content_id": next.ContentID,
			}, added)
		})
	}
	return conflict(w.Commit(ctx, store.Put(table, id, next, store.IfRev(rev))))
}

// checkLimits refuses findings above the limits of all; before are those that they replace.
func (f *Findings) checkLimits(before, after string) error {
	total := len(after) - len(before)
	if total <= 0 {
		return nil
	}
	if before == "" && f.db.Tables.Findings.Len() >= maxVersions {
		return farm.Errorf(farm.CodeTooMany,
			"The findings of %d versions are stored, which is the limit; remove old versions", maxVersions)
	}
	for _, v := range f.db.Tables.Findings.All() {
		total += len(v.Found)
	}
	if total > maxTotalText {
		return farm.Errorf(farm.CodeTooMany,
			"The findings of all versions have %d bytes, which is the limit; remove old versions", maxTotalText)
	}
	return nil
}

// conflict describes the error of a commit.
func conflict(err error) error {
	if errors.Is(err, store.ErrConflict) {
		return farm.Errorf(farm.CodeConflict, "The findings of this version were changed concurrently; try again")
	}
	return err
}

// newRecord checks findings, and returns their record.
func (f *Findings) newRecord(v api.VersionFindings) (*record.VersionFindings, error) {
	id, err := uuid.Parse(v.TemplateID)
	switch {
	case err != nil:
		return nil, farm.Invalid("template_id", "must be the ID of a template")
	case v.Tag == "" || len(v.Tag) > maxTag || strings.ContainsFunc(v.Tag, vulntext.IsControl):
		return nil, farm.Invalid("tag", "must have 1 to %d bytes and no control characters", maxTag)
	case len(v.ContentID) != contentIDDigits || strings.Trim(v.ContentID, "0123456789abcdef") != "":
		return nil, farm.Invalid("content_id", "must be the content ID of the scanned version: 64 hex digits")
	case v.Database.IsZero():
		return nil, farm.Invalid("database", "is required: want a time such as 2026-01-31T12:00:00Z")
	}
	found, err := vulntext.Encode(v.Vulnerabilities)
	return &record.VersionFindings{
		TemplateID: id.String(), Tag: v.Tag, ContentID: v.ContentID, Database: v.Database.UTC(), Reported: f.db.Now(),
		Found: found,
	}, err
}

// remove removes a record; a revision of 0 is none.
func (f *Findings) remove(ctx context.Context, w store.Writer, id string, rev int64) error {
	if rev == 0 {
		return nil
	}
	return conflict(w.Commit(ctx, store.Delete(f.db.Tables.Findings, id, store.IfRev(rev))))
}

// Remove removes the findings in contents of a template that was changed; nil are all its contents.
func (f *Findings) Remove(ctx context.Context, template string, contents []string) error {
	if contents == nil {
		for _, v := range f.db.Tables.Findings.All() {
			if v.TemplateID == template {
				contents = append(contents, v.ContentID)
			}
		}
	}
	for _, content := range contents {
		id := key(template, content)
		_, rev, err := f.db.Tables.Findings.GetLinearizable(ctx, id)
		if err == nil {
			err = f.remove(ctx, f.db.Store, id, rev)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Affected lists what vulnerabilities affect, in no order. IDs are compared without case.
func (f *Findings) Affected(ids []string) api.Affected {
	wanted := make([]string, len(ids))
	for i, id := range ids {
		wanted[i] = vulntext.Canonical(id)
	}
	out := api.Affected{
		Versions: []api.AffectedVersion{}, Nodes: []api.AffectedNode{}, Instances: []api.AffectedInstance{},
	}
	found := map[string][]string{} // IDs by the ID of the record
	for id, v := range f.db.Tables.Findings.All() {
		if hit := vulntext.Among(v.Found, wanted); len(hit) > 0 {
			found[id] = idsOf(hit)
			out.Versions = append(out.Versions, api.AffectedVersion{
				TemplateID: v.TemplateID, TemplateName: f.templateName(v.TemplateID), Tag: v.Tag,
				ContentID: v.ContentID, Database: v.Database, Reported: v.Reported, Vulnerabilities: hit,
			})
		}
	}
	for id, s := range f.db.Tables.Scans.All() {
		node, _, ok := f.db.Tables.Nodes.Get(id)
		if !ok {
			continue
		}
		if hit := vulntext.Among(s.Found, wanted); len(hit) > 0 {
			out.Nodes = append(out.Nodes,
				api.AffectedNode{NodeID: id, NodeName: node.Name, Scanned: s.Scanned, Vulnerabilities: hit})
		}
	}
	if len(found) > 0 {
		out.Instances = f.instances(found)
	}
	return out
}

// instances lists those of versions in which vulnerabilities were found.
func (f *Findings) instances(found map[string][]string) []api.AffectedInstance {
	list := []api.AffectedInstance{}
	for id, i := range f.db.Tables.Instances.All() {
		ids := found[key(i.Template.ID, i.Template.ContentID)]
		if ids == nil || i.State == farm.Terminated {
			continue
		}
		list = append(list, api.AffectedInstance{
			InstanceID: id, Name: i.Name, State: string(i.State), NodeID: i.NodeID, TemplateID: i.Template.ID,
			Tag: i.Template.Tag, Vulnerabilities: ids,
		})
	}
	return list
}

func (f *Findings) templateName(id string) string {
	if t, _, ok := f.db.Tables.KnownTemplates.Get(id); ok {
		return t.Name
	}
	return ""
}

// idsOf returns the IDs of vulnerabilities, each once.
func idsOf(list []api.FoundVulnerability) (ids []string) {
	for _, v := range list {
		if len(ids) == 0 || ids[len(ids)-1] != v.ID { // the list is in their order
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// Prune removes findings that no scanner has reported for long.
func (f *Findings) Prune(ctx context.Context, w *record.Term, now time.Time) error {
	for id, v := range f.db.Tables.Findings.All() {
		if now.Sub(v.Reported) <= retention {
			continue
		}
		_, rev, err := f.db.Tables.Findings.GetLinearizable(ctx, id)
		if err == nil {
			err = f.remove(ctx, w, id, rev)
		}
		if err != nil && farm.CodeOf(err) != farm.CodeConflict {
			return err
		}
	}
	return nil
}
