package templates

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/transfer"
)

// Registry is the part of a registry that this package uses.
type Registry interface {
	ListTemplates(ctx context.Context) ([]api.Template, error)
	TemplateDetail(ctx context.Context, id string) (api.TemplateDetail, error)
	VersionConfig(ctx context.Context, ref transfer.VersionRef) (api.TemplateConfig, error)
	DiskInfo(ctx context.Context) (api.DiskInfo, error)
	DeleteTemplate(ctx context.Context, id string) error
	Revert(ctx context.Context, ref transfer.VersionRef) error
}

// Events records the events of deletions.
type Events interface {
	// Enabled reports whether events are recorded at all.
	Enabled() bool
	// Actor returns who makes a request.
	Actor(ctx context.Context) farm.Actor
	// With returns a writer whose commits have an event as well.
	With(w store.Writer, event func() farm.Event) store.Writer
}

// Options configure Templates.
type Options struct {
	Registry Registry
	Rights   RightsQuery // what callers may do at the registry; nil: everything
	Events   Events
	IsLeader func() bool // whether this replica compares the known templates with the registry's list
	// Removed is called when contents of a template were removed from the registry; nil contents are all of them.
	// Its error is logged: the removal is not repeated.
	Removed func(ctx context.Context, template string, contents []string) error
}

// Templates are the templates of the registry.
type Templates struct {
	db      record.DB
	opts    Options
	configs *configCache
	known   *knownTemplates
}

// New returns the templates of a registry.
func New(db record.DB, opts Options) *Templates {
	configs := &configCache{registry: opts.Registry}
	return &Templates{db: db, opts: opts, configs: configs, known: newKnownTemplates(db, opts, configs)}
}

// Run keeps the last known states of templates until the context ends.
func (t *Templates) Run(ctx context.Context) { t.known.run(ctx) }

// List returns the templates that the caller may list.
func (t *Templates) List(ctx context.Context) ([]api.Template, error) {
	r, err := t.rightsOn(ctx, "")
	if err != nil {
		return nil, err
	}
	if !r.allows(listRight) {
		return nil, listRight.forbidden()
	}
	list, err := t.opts.Registry.ListTemplates(ctx)
	if err != nil {
		return nil, registryError(err)
	}
	if r.CallerRights == nil || !r.Managed {
		return list, nil
	}
	hidden := func(one api.Template) bool { return !r.on(one.ID, listRight.right) }
	return slices.DeleteFunc(slices.Clone(list), hidden), nil
}

// Known returns the last known states of templates that nodes have cached or that were started, by id.
func (t *Templates) Known() map[string]*record.KnownTemplate {
	return maps.Collect(t.db.Tables.KnownTemplates.All())
}

// Content is the content of a version of a template.
type Content struct{ TemplateID, ContentID string }

// EqualTags returns the tags of versions with equal content, as far as they are known: a node that has one of them has
// all. Content with one tag is not in the result.
func (t *Templates) EqualTags() map[Content][]string {
	equal := map[Content][]string{}
	tags := map[string]string{} // of one template: content id -> first tag
	for id, known := range t.db.Tables.KnownTemplates.All() {
		clear(tags)
		for _, v := range known.Versions {
			first, more := tags[v.ContentID]
			if !more {
				tags[v.ContentID] = v.Tag
				continue
			}
			content := Content{id, v.ContentID}
			if equal[content] == nil {
				equal[content] = []string{first}
			}
			equal[content] = append(equal[content], v.Tag)
		}
	}
	return equal
}

// Visible returns which templates the caller may list, as far as that is known now.
func (t *Templates) Visible(ctx context.Context) func(id string) bool {
	r, err := t.rightsOn(ctx, "")
	if err != nil || !r.allows(listRight) {
		return func(string) bool { return false }
	}
	return func(id string) bool { return r.on(id, listRight.right) }
}

// Get returns one template with its versions; farm.CodeNotFound when it does not exist, or the
// caller may not list it.
func (t *Templates) Get(ctx context.Context, id string) (api.TemplateDetail, error) {
	return t.allowed(ctx, id, listRight)
}

// PullVersion returns a version, and its template, to a caller that may pull it; with neither tag nor
// number the latest.
func (t *Templates) PullVersion(
	ctx context.Context, id, tag string, number *int,
) (api.TemplateDetail, api.TemplateVersion, error) {
	return t.version(ctx, pullRight, id, tag, number)
}

// Guest returns the guest of a version, as setGuest describes it, and nothing else of the version.
func (t *Templates) Guest(
	ctx context.Context, template string, v api.TemplateVersion,
) (ref farm.TemplateRef, err error) {
	config, err := t.configs.get(ctx, template, v)
	if err != nil {
		return ref, registryError(err)
	}
	setGuest(&ref, config)
	return ref, nil
}

// Revert removes a version of a template and all newer ones; with neither tag nor number the latest.
// The registry is asked for exactly the version that was found here: a repeated call must not remove
// one more.
func (t *Templates) Revert(ctx context.Context, id, tag string, number *int) error {
	detail, v, err := t.version(ctx, revertRight, id, tag, number)
	if err != nil {
		return err
	}
	err = t.opts.Registry.Revert(ctx,
		transfer.VersionRef{ID: detail.ID, Tag: v.Tag, Number: &v.Number, ContentID: v.ContentID})
	switch {
	case err == nil:
		t.removed(ctx, strings.ToLower(detail.ID), removedContents(detail, v.Number))
		return nil
	case farm.CodeOf(err) == farm.CodeNoVersion: // reverted a moment ago
		return farm.Refused("No such tag %s", v.Tag)
	default:
		return registryError(err)
	}
}

// removed reports contents that were removed from the registry.
func (t *Templates) removed(ctx context.Context, template string, contents []string) {
	if t.opts.Removed == nil {
		return
	}
	if err := t.opts.Removed(context.WithoutCancel(ctx), template, contents); err != nil {
		t.db.Log.WarnContext(ctx, "removing what is kept of a removed template failed; it expires",
			"template", template, "error", err)
	}
}

// removedContents returns the contents that no version of a template has that is older than a number.
func removedContents(d api.TemplateDetail, number int) []string {
	gone := []string{}
	for _, v := range d.Versions {
		stays := slices.ContainsFunc(d.Versions, func(o api.TemplateVersion) bool {
			return o.Number < number && o.ContentID == v.ContentID
		})
		if v.Number >= number && !stays {
			gone = append(gone, v.ContentID)
		}
	}
	return gone
}

// version returns a version, and its template, to a caller with the required right.
func (t *Templates) version(
	ctx context.Context, n requiredRight, id, tag string, number *int,
) (api.TemplateDetail, api.TemplateVersion, error) {
	detail, err := t.allowed(ctx, id, n)
	if err != nil {
		return detail, api.TemplateVersion{}, err
	}
	v, err := pickVersion(detail, tag, number)
	return detail, v, err
}

// DiskInfo returns the free space of the registry's disk.
func (t *Templates) DiskInfo(ctx context.Context) (api.DiskInfo, error) {
	disk, err := t.opts.Registry.DiskInfo(ctx)
	if err != nil {
		return api.DiskInfo{}, registryError(err)
	}
	return disk, nil
}

// registryError keeps a registry's error of a lookup, of a refusal or of being unreachable, and
// hides the details of other failures.
func registryError(err error) error {
	switch farm.CodeOf(err) {
	case "", farm.CodeNotFound, farm.CodeRefused, farm.CodeUnavailable, farm.CodeForbidden:
		return err
	}
	return farm.Unavailable(err, "The registry cannot be reached; try again")
}
