package controller

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Bounds of the stored templates.
const (
	maxKnownTemplates = 1000
	maxKnownVersions  = 50       // of one template, the newest
	maxKnownBytes     = 64 << 10 // of the versions of one template
)

// templateMark distinguishes two states of a template without comparing all their versions.
type templateMark struct {
	name, arch, tag, contentID string
	number, versions           int
	pushed                     int64
}

func markOf(d api.TemplateDetail) templateMark {
	m := templateMark{name: d.Name, arch: d.Arch, versions: len(d.Versions), pushed: d.LastPush}
	if len(d.Versions) > 0 {
		last := d.Versions[len(d.Versions)-1]
		m.tag, m.contentID, m.number = last.Tag, last.ContentID, last.Number
		m.arch += "," + last.Arch
	}
	return m
}

// knownTemplates updates the records of known templates with every read of the registry. Readers
// only queue what they found: no start waits for a write.
type knownTemplates struct {
	c     *Controller
	queue chan api.TemplateDetail // without versions: the template is deleted

	mu   sync.Mutex
	seen map[string]templateMark // template id -> state that was queued or stored last
}

// Intervals and bounds of knownTemplates.
const (
	knownQueue   = 256
	knownRefresh = time.Minute // between two comparisons with the registry's list
	knownLook    = 5 * time.Second
)

func newKnownTemplates(c *Controller) *knownTemplates {
	return &knownTemplates{c: c, queue: make(chan api.TemplateDetail, knownQueue), seen: map[string]templateMark{}}
}

// observe queues the state of a template that was read from the registry.
func (k *knownTemplates) observe(d api.TemplateDetail) {
	m := markOf(d)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen[d.ID] == m {
		return
	}
	if len(k.seen) >= 2*maxKnownTemplates { // they are compared again, which costs no write
		clear(k.seen)
	}
	select {
	case k.queue <- d:
		k.seen[d.ID] = m
	default: // the next read finds it again
	}
}

// forget queues that the registry no longer has a template.
func (k *knownTemplates) forget(id string) {
	if _, _, ok := k.c.tables.KnownTemplates.Get(id); ok {
		k.observe(api.TemplateDetail{Template: api.Template{ID: id}})
	}
}

// run stores what readers have queued, and on the leader compares the known templates with the
// registry's list, until the context ends.
func (k *knownTemplates) run(ctx context.Context) {
	refresh := time.NewTicker(knownRefresh)
	defer refresh.Stop()
	for {
		var id string
		var err error
		select {
		case <-ctx.Done():
			return
		case d := <-k.queue:
			id, err = d.ID, k.store(ctx, d)
		case <-refresh.C:
			if k.c.keeping.Load() {
				err = k.refresh(ctx)
			}
		}
		if err == nil {
			continue
		}
		k.mu.Lock()
		delete(k.seen, id) // the next read tries again
		k.mu.Unlock()
		if ctx.Err() == nil && !errors.Is(err, store.ErrConflict) && farm.CodeOf(err) != farm.CodeUnavailable {
			k.c.log.WarnContext(ctx, "storing a template description failed", "template", id, "error", err)
		}
	}
}

// store writes the state of a template, unless it is known already.
func (k *knownTemplates) store(ctx context.Context, d api.TemplateDetail) error {
	table := k.c.tables.KnownTemplates
	had, rev, ok := table.Get(d.ID)
	if len(d.Versions) == 0 {
		if !ok {
			return nil
		}
		return k.c.store.Commit(ctx, store.Delete(table, d.ID, store.IfRev(rev)))
	}
	if !ok && table.Len() >= maxKnownTemplates {
		return nil
	}
	versions, err := k.resolve(ctx, d, had)
	if err != nil {
		return err
	}
	versions = newestWithin(versions, maxKnownBytes)
	if len(versions) == 0 || ok && had.Name == d.Name && slices.Equal(had.Versions, versions) {
		return nil
	}
	guard := store.IfAbsent
	if ok {
		guard = store.IfRev(rev)
	}
	next := &record.KnownTemplate{Name: farm.Clip(d.Name, maxField), Versions: versions, Changed: k.c.now()}
	return k.c.store.Commit(ctx, store.Put(table, d.ID, next, guard))
}

// newestWithin returns the newest versions whose encoded size together is within a limit.
func newestWithin(versions []farm.TemplateRef, limit int) []farm.TemplateRef {
	for i, v := range slices.Backward(versions) {
		text, err := json.Marshal(v)
		if limit -= len(text); err != nil || limit < 0 {
			return versions[i+1:]
		}
	}
	return versions
}

// resolve returns the newest versions of a template with the fields of their configurations that a
// start needs. Configurations of already known content are not read again.
func (k *knownTemplates) resolve(
	ctx context.Context, d api.TemplateDetail, had *record.KnownTemplate,
) ([]farm.TemplateRef, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	newest := d.Versions[max(0, len(d.Versions)-maxKnownVersions):]
	out := make([]farm.TemplateRef, 0, len(newest))
	for _, v := range newest {
		if v.ContentID == "" {
			continue // its bytes have no name that a cache could use
		}
		ref := refOf(d, v)
		if old, ok := had.Version(v.ContentID); ok && old.Suspended == ref.Suspended {
			ref.CPUs, ref.MemoryMB, ref.Needs, ref.Network, ref.VLAN = old.CPUs, old.MemoryMB, old.Needs, old.Network,
				old.VLAN
			out = append(out, ref)
			continue
		}
		config, err := k.c.configs.get(ctx, k.c.opts.Registry, d.ID, v)
		switch farm.CodeOf(err) {
		case "":
			configure(&ref, config)
			out = append(out, ref)
		case farm.CodeNoVersion, farm.CodeNotFound: // reverted a moment ago
		default:
			return nil, err
		}
	}
	return out, nil
}

// refresh reads the templates that nodes have cached, or that are known, if their state in the
// registry's list has changed, and removes those that are deleted.
func (k *knownTemplates) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, knownRefresh)
	defer cancel()
	list, err := k.c.opts.Registry.List(ctx)
	if err != nil {
		return registryError(err)
	}
	wanted := k.cached()
	for id := range k.c.tables.KnownTemplates.All() {
		wanted[id] = true
	}
	for _, t := range list {
		if !wanted[t.ID] {
			continue
		}
		delete(wanted, t.ID)
		if k.current(t) {
			continue
		}
		look, cancel := context.WithTimeout(ctx, knownLook)
		d, err := k.c.opts.Registry.Detail(look, t.ID)
		cancel()
		switch {
		case err == nil:
			k.observe(d)
		case farm.CodeOf(err) != farm.CodeNotFound:
			return registryError(err)
		}
	}
	for id := range wanted {
		k.forget(id)
	}
	return nil
}

// current reports whether the state that was seen last of a template is that of a list.
func (k *knownTemplates) current(t api.Template) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	m, ok := k.seen[t.ID]
	arch, _, _ := strings.Cut(m.arch, ",")
	return ok && m.name == t.Name && arch == t.Arch && m.pushed == t.LastPush && m.versions == t.VersionCount
}

// cached returns the ids of the templates of which some node has a version.
func (k *knownTemplates) cached() map[string]bool {
	ids := map[string]bool{}
	for _, info := range k.c.tables.Infos.All() {
		for _, t := range info.Templates {
			ids[strings.ToLower(t.ID)] = true
		}
	}
	return ids
}

// unreachable reports whether an error means that the registry did not answer. A registry that
// refuses the controller's credentials did answer.
func unreachable(err error) bool {
	if farm.CodeOf(err) != farm.CodeUnavailable {
		return false
	}
	e, _ := errors.AsType[*farm.Error](err)
	return farm.CodeOf(e.Err) != farm.CodeUnauthenticated
}

// resolveKnown finds the version for a start in the last known state of its template, since the
// registry cannot be reached, and returns a note for the instance's message.
func (c *Controller) resolveKnown(id, tag string, number *int, away error) (farm.TemplateRef, string, error) {
	var none farm.TemplateRef
	cause, _ := errors.AsType[*farm.Error](away)
	known, _, ok := c.tables.KnownTemplates.Get(strings.ToLower(id))
	if !ok {
		return none, "",
			farm.Refused("Template %s is not in the controller's records, and the registry cannot be queried: %s", id,
				cause.Message)
	}
	picked, err := pickVersion(known.Detail(strings.ToLower(id)), tag, number)
	if err != nil {
		return none, "",
			farm.Refused(
				"The requested version of template %s is not in the controller's records, and the registry cannot "+
					"be queried: %s",
				known.Name, cause.Message)
	}
	ref, _ := known.Version(picked.ContentID)
	return ref, "the registry cannot be reached: tag " + ref.Tag +
		" is taken from the last known state of the template", nil
}
