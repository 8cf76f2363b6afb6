package templates

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

// Intervals and bounds of knownTemplates.
const (
	knownQueue      = 256
	refreshInterval = time.Minute // between two comparisons with the registry's list
	detailTimeout   = 5 * time.Second
	resolveTimeout  = time.Minute
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
	db       record.DB
	registry Registry
	isLeader func() bool
	configs  *configCache
	queue    chan api.TemplateDetail // without versions: the template is deleted

	mu    sync.Mutex
	marks map[string]templateMark // template id -> state that was queued or stored last
}

func newKnownTemplates(db record.DB, opts Options, configs *configCache) *knownTemplates {
	return &knownTemplates{
		db: db, registry: opts.Registry, isLeader: opts.IsLeader, configs: configs,
		queue: make(chan api.TemplateDetail, knownQueue), marks: map[string]templateMark{},
	}
}

// enqueue queues the state of a template that was read from the registry.
func (k *knownTemplates) enqueue(d api.TemplateDetail) {
	m := markOf(d)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.marks[d.ID] == m {
		return
	}
	if len(k.marks) >= 2*maxKnownTemplates { // they are compared again, which costs no write
		clear(k.marks)
	}
	select {
	case k.queue <- d:
		k.marks[d.ID] = m
	default: // the next read finds it again
	}
}

// remove queues that the registry no longer has a template.
func (k *knownTemplates) remove(id string) {
	if _, _, ok := k.db.Tables.KnownTemplates.Get(id); ok {
		k.enqueue(api.TemplateDetail{Template: api.Template{ID: id}})
	}
}

// run stores what readers have queued, and on the leader compares the known templates with the
// registry's list, until the context ends.
func (k *knownTemplates) run(ctx context.Context) {
	refresh := time.NewTicker(refreshInterval)
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
			if k.isLeader() {
				err = k.refresh(ctx)
			}
		}
		if err == nil {
			continue
		}
		k.mu.Lock()
		delete(k.marks, id) // the next read tries again
		k.mu.Unlock()
		if ctx.Err() == nil && !errors.Is(err, store.ErrConflict) && farm.CodeOf(err) != farm.CodeUnavailable {
			k.db.Log.WarnContext(ctx, "storing a template description failed", "template", id, "error", err)
		}
	}
}

// store writes the state of a template, unless it is known already.
func (k *knownTemplates) store(ctx context.Context, d api.TemplateDetail) error {
	table := k.db.Tables.KnownTemplates
	old, rev, ok := table.Get(d.ID)
	if len(d.Versions) == 0 {
		if !ok {
			return nil
		}
		return k.db.Store.Commit(ctx, store.Delete(table, d.ID, store.IfRev(rev)))
	}
	if !ok && table.Len() >= maxKnownTemplates {
		return nil
	}

	versions, err := k.resolve(ctx, d, old)
	if err != nil {
		return err
	}
	versions = newestWithin(versions, maxKnownBytes)
	if len(versions) == 0 || ok && old.Name == d.Name && slices.Equal(old.Versions, versions) {
		return nil
	}
	condition := store.IfAbsent
	if ok {
		condition = store.IfRev(rev)
	}
	next := &record.KnownTemplate{Name: farm.Clip(d.Name, maxField), Versions: versions, Changed: k.db.Now()}
	return k.db.Store.Commit(ctx, store.Put(table, d.ID, next, condition))
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
	ctx context.Context, d api.TemplateDetail, old *record.KnownTemplate,
) ([]farm.TemplateRef, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	newest := d.Versions[max(0, len(d.Versions)-maxKnownVersions):]
	out := make([]farm.TemplateRef, 0, len(newest))
	for _, v := range newest {
		if v.ContentID == "" {
			continue // its bytes have no name that a cache could use
		}
		ref := refOf(d, v)
		if same, ok := old.Version(v.ContentID); ok && same.Suspended == ref.Suspended {
			ref.CPUs, ref.MemoryMB, ref.Needs = same.CPUs, same.MemoryMB, same.Needs
			ref.Network, ref.VLAN = same.Network, same.VLAN
			ref.OS, ref.MinCPUs, ref.MinMemoryMB = same.OS, same.MinCPUs, same.MinMemoryMB
			if same.OS == farm.OSMacOS { // the configuration decides it, not the template
				ref.Arch = same.Arch
			}
			ref.Video, ref.SetsMAC = same.Video, same.SetsMAC
			out = append(out, ref)
			continue
		}
		config, err := k.configs.get(ctx, d.ID, v)
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
	ctx, cancel := context.WithTimeout(ctx, refreshInterval)
	defer cancel()
	list, err := k.registry.ListTemplates(ctx)
	if err != nil {
		return registryError(err)
	}
	wanted := k.cached()
	for id := range k.db.Tables.KnownTemplates.All() {
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
		detailCtx, cancel := context.WithTimeout(ctx, detailTimeout)
		d, err := k.registry.TemplateDetail(detailCtx, t.ID)
		cancel()
		switch {
		case err == nil:
			k.enqueue(d)
		case farm.CodeOf(err) != farm.CodeNotFound:
			return registryError(err)
		}
	}
	for id := range wanted {
		k.remove(id)
	}
	return nil
}

// current reports whether the state that was queued last of a template is that of a list.
func (k *knownTemplates) current(t api.Template) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	m, ok := k.marks[t.ID]
	arch, _, _ := strings.Cut(m.arch, ",")
	return ok && m.name == t.Name && arch == t.Arch && m.pushed == t.LastPush && m.versions == t.VersionCount
}

// cached returns the ids of the templates of which some node has a version.
func (k *knownTemplates) cached() map[string]bool {
	ids := map[string]bool{}
	for _, info := range k.db.Tables.Infos.All() {
		for _, t := range info.Templates {
			ids[strings.ToLower(t.ID)] = true
		}
	}
	return ids
}
