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
	// maxAhead is how far a vulnerability database may be dated after the time of this host: clocks differ.
	maxAhead = 24 * time.Hour
	// maxTag is the length of a tag in bytes.
	maxTag = 255
	// contentIDDigits is the length of a content ID.
	contentIDDigits = 64
)

// Options configure Findings.
type Options struct {
	// WithEvent returns a writer whose commits carry an event as well.
	WithEvent func(w store.Writer, event func() farm.Event) store.Writer
	// Template returns a template of the registry.
	Template func(ctx context.Context, id string) (api.TemplateDetail, error)
}

// Findings are those of all versions. They are safe for concurrent use.
type Findings struct {
	db   record.DB
	opts Options
}

// New returns the findings in the records.
func New(db record.DB, opts Options) *Findings { return &Findings{db, opts} }

// key returns the ID of the record of a version.
func key(template, content string) string { return template + "/" + content }

// Put stores the findings in a version, in place of older ones of the same content of the template. What was not
// found before makes an event. Those of a partial scan are only added.
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
	if old != nil && next.Database.Before(old.Database) && !old.Database.After(next.Reported.Add(maxAhead)) {
		return farm.Errorf(farm.CodeConflict, "Findings of a newer vulnerability database exist, of %s",
			old.Database.Format(time.RFC3339))
	}
	switch gone, err := f.isGone(ctx, next, v.Removed); {
	case err != nil:
		return err
	case gone && !f.used()[id]:
		return f.remove(ctx, f.db.Store, id, rev)
	case gone:
		next.Removed = next.Reported
	case old == nil:
		if err := f.checkExists(ctx, next.TemplateID, next.ContentID); err != nil {
			return err
		}
	}
	before := ""
	if old != nil {
		before = old.Found
		if v.Partial {
			var cut bool
			next.Found, cut = vulntext.Merge(before, v.Vulnerabilities)
			next.Partial, next.Truncated = old.Partial, cut || old.Truncated || v.Truncated
		}
	}
	if err := f.checkLimits(old == nil, len(next.Found)-len(before)); err != nil {
		return err
	}
	w := store.Writer(f.db.Store)
	if added := vulntext.Added(before, next.Found); len(added) > 0 {
		w = f.opts.WithEvent(w, func() farm.Event {
			return vulntext.FoundEvent(map[string]any{
				"template_id": next.TemplateID, "tag": next.Tag, "content_id": next.ContentID,
			}, added)
		})
	}
	return conflict(w.Commit(ctx, store.Put(table, id, next, store.IfRev(rev))))
}

// checkExists refuses a content that no version of a template has: reports about such ones would take the place of
// others.
func (f *Findings) checkExists(ctx context.Context, template, content string) error {
	known, _, _ := f.db.Tables.KnownTemplates.Get(template)
	if _, ok := known.Version(content); ok || f.used()[key(template, content)] {
		return nil
	}
	has, err := f.registryHas(ctx, template, content)
	if err == nil && !has {
		return farm.Invalid("content_id", "must be the content ID of a version of the template; scan it again")
	}
	return err
}

// isGone reports whether the registry lacks a version that a scanner reports as removed. The scanner may have looked at
// an old copy of the registry's storage.
func (f *Findings) isGone(ctx context.Context, v *record.VersionFindings, reported bool) (bool, error) {
	if !reported {
		return false, nil
	}
	has, err := f.registryHas(ctx, v.TemplateID, v.ContentID)
	if farm.CodeOf(err) == farm.CodeNotFound {
		return true, nil
	}
	return err == nil && !has, err
}

// registryHas reports whether a template has a version with a content; farm.CodeNotFound when it lacks the template.
func (f *Findings) registryHas(ctx context.Context, template, content string) (bool, error) {
	d, err := f.opts.Template(ctx, template)
	if err != nil && farm.CodeOf(err) != farm.CodeNotFound {
		err = farm.Unavailable(err, "The registry cannot be reached; try again")
	}
	return slices.ContainsFunc(d.Versions, func(v api.TemplateVersion) bool { return v.ContentID == content }), err
}

// checkLimits refuses a new record, or more bytes, above the limits of all.
func (f *Findings) checkLimits(isNew bool, added int) error {
	if isNew && f.db.Tables.Findings.Len() >= maxVersions {
		return farm.Errorf(farm.CodeTooMany,
			"The findings of %d versions are stored, which is the limit; remove old versions", maxVersions)
	}
	if added <= 0 {
		return nil
	}
	total := added
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
	case v.Database.After(f.db.Now().Add(maxAhead)):
		return nil, farm.Invalid("database", "must be at most a day ahead of the controller's time; correct the clock "+
			"of the host that built the vulnerability database, and build it again")
	}
	found, err := vulntext.Encode(v.Vulnerabilities)
	return &record.VersionFindings{
		TemplateID: id.String(), Tag: v.Tag, ContentID: v.ContentID, Database: v.Database.UTC(), Reported: f.db.Now(),
		Partial: v.Partial, Truncated: v.Truncated, Sum: v.Sum(), Found: found,
	}, err
}

// remove removes a record; a revision of 0 is none.
func (f *Findings) remove(ctx context.Context, w store.Writer, id string, rev int64) error {
	if rev == 0 {
		return nil
	}
	return conflict(w.Commit(ctx, store.Delete(f.db.Tables.Findings, id, store.IfRev(rev))))
}

// Remove removes the findings in contents of a template that the registry no longer has; nil are all its contents.
// Those of contents in use are kept and marked.
func (f *Findings) Remove(ctx context.Context, template string, contents []string) error {
	if contents == nil {
		for _, v := range f.db.Tables.Findings.All() {
			if v.TemplateID == template {
				contents = append(contents, v.ContentID)
			}
		}
	}
	used := f.used()
	for _, content := range contents {
		id := key(template, content)
		old, rev, err := f.db.Tables.Findings.GetLinearizable(ctx, id)
		switch {
		case err != nil || old == nil:
		case used[id]:
			next := *old
			next.Removed = f.db.Now()
			err = conflict(f.db.Store.Commit(ctx, store.Put(f.db.Tables.Findings, id, &next, store.IfRev(rev))))
		default:
			err = f.remove(ctx, f.db.Store, id, rev)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// used returns the IDs of the records of the contents that instances and nodes have.
func (f *Findings) used() map[string]bool {
	ids := map[string]bool{}
	for _, i := range f.db.Tables.Instances.All() {
		if i.State != farm.Terminated {
			ids[key(i.Template.ID, i.Template.ContentID)] = true
		}
	}
	for _, info := range f.db.Tables.Infos.All() {
		for _, t := range info.Templates {
			ids[key(strings.ToLower(t.ID), t.ContentID)] = true
		}
	}
	return ids
}

// isRemoved reports whether the registry lacks a version, as far as that is known.
func (f *Findings) isRemoved(v *record.VersionFindings) bool {
	if v.Removed.IsZero() {
		return false
	}
	known, _, _ := f.db.Tables.KnownTemplates.Get(v.TemplateID)
	_, back := known.Version(v.ContentID)
	return !back || known.Changed.Before(v.Removed)
}

// Reported lists the last reports about versions, in no order.
func (f *Findings) Reported(seesTemplate func(id string) bool) []api.ReportedVersion {
	list := []api.ReportedVersion{}
	for _, v := range f.db.Tables.Findings.All() {
		if seesTemplate(v.TemplateID) {
			list = append(list, api.ReportedVersion{
				TemplateID: v.TemplateID, Tag: v.Tag, ContentID: v.ContentID, Database: v.Database,
				Reported: v.Reported, Sum: v.Sum,
			})
		}
	}
	return list
}

// Scope is what a caller may see.
type Scope struct {
	ListsVersions          bool // else also no instances: those that are listed say what is in their versions
	SeesTemplate, SeesNode func(id string) bool
}

// Affected lists what vulnerabilities affect, in no order. IDs are compared without case.
func (f *Findings) Affected(ids []string, see Scope) api.Affected {
	wanted := make([]string, len(ids))
	for i, id := range ids {
		wanted[i] = vulntext.Canonical(id)
	}
	out := api.Affected{
		Versions: []api.AffectedVersion{}, Nodes: []api.AffectedNode{}, Instances: []api.AffectedInstance{},
	}
	found := map[string][]string{} // IDs by the ID of the record
	for id, v := range f.db.Tables.Findings.All() {
		if !see.ListsVersions || !see.SeesTemplate(v.TemplateID) {
			continue
		}
		count(&out.Gaps.PartialVersions, v.Partial)
		count(&out.Gaps.TruncatedVersions, v.Truncated)
		if hit := vulntext.Among(v.Found, wanted); len(hit) > 0 {
			found[id] = idsOf(hit)
			out.Versions = append(out.Versions, api.AffectedVersion{
				TemplateID: v.TemplateID, TemplateName: f.templateName(v.TemplateID), Tag: v.Tag,
				Tags:      f.tagsOf(v),
				ContentID: v.ContentID, Database: v.Database, Reported: v.Reported, Partial: v.Partial,
				Truncated: v.Truncated, Removed: f.isRemoved(v), Vulnerabilities: hit,
			})
		}
	}
	for id, s := range f.db.Tables.Scans.All() {
		node, _, ok := f.db.Tables.Nodes.Get(id)
		if !ok || !see.SeesNode(id) {
			continue
		}
		count(&out.Gaps.TruncatedNodes, s.Truncated)
		if hit := vulntext.Among(s.Found, wanted); len(hit) > 0 {
			out.Nodes = append(out.Nodes, api.AffectedNode{
				NodeID: id, NodeName: node.Name, Scanned: s.Scanned, Truncated: s.Truncated, Vulnerabilities: hit,
			})
		}
	}
	if len(found) > 0 {
		out.Instances = f.instances(found)
	}
	if see.ListsVersions {
		f.countUnscanned(&out.Gaps, see)
	}
	return out
}

// countUnscanned counts the versions in use, and their instances, about which no scan was reported.
func (f *Findings) countUnscanned(gaps *api.AffectedGaps, see Scope) {
	unscanned := func(id string) bool {
		template, _, _ := strings.Cut(id, "/")
		_, _, ok := f.db.Tables.Findings.Get(id)
		return !ok && see.SeesTemplate(template)
	}
	for id := range f.used() {
		count(&gaps.UnscannedVersions, unscanned(id))
	}
	for _, i := range f.db.Tables.Instances.All() {
		if i.State != farm.Terminated && !i.IsStandby() {
			count(&gaps.UnscannedInstances, unscanned(key(i.Template.ID, i.Template.ContentID)))
		}
	}
}

// count adds one to a number if something is so.
func count(n *int, is bool) {
	if is {
		*n++
	}
}

// instances lists those of versions in which vulnerabilities were found.
func (f *Findings) instances(found map[string][]string) []api.AffectedInstance {
	list := []api.AffectedInstance{}
	for id, i := range f.db.Tables.Instances.All() {
		ids := found[key(i.Template.ID, i.Template.ContentID)]
		if ids == nil || i.State == farm.Terminated || i.IsStandby() { // no caller has asked for a standby
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

// tagsOf returns the tags of a content, oldest first: those of the template as it is known, else that of the last scan.
func (f *Findings) tagsOf(v *record.VersionFindings) (tags []string) {
	if known, _, ok := f.db.Tables.KnownTemplates.Get(v.TemplateID); ok {
		for _, version := range known.Versions {
			if version.ContentID == v.ContentID {
				tags = append(tags, version.Tag)
			}
		}
	}
	if len(tags) == 0 {
		tags = []string{v.Tag}
	}
	return tags
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

// Prune removes findings that no scanner has reported for long, and those in removed versions that are no longer in
// use.
func (f *Findings) Prune(ctx context.Context, w *record.Term, now time.Time) error {
	var used map[string]bool
	for id, v := range f.db.Tables.Findings.All() {
		removed := f.isRemoved(v)
		if removed && used == nil {
			used = f.used()
		}
		if now.Sub(v.Reported) <= retention && (!removed || used[id]) {
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
