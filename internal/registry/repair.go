package registry

import (
	"context"
	"errors"
	"io/fs"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

// Repair fixes what can be fixed while the registry runs, and reports what remains. It removes nothing that can
// be read: directories without a readable template are moved to quarantine, and their layers stay.
func (r *Registry) Repair(ctx context.Context, o CheckOptions) (api.RegistryRepair, error) {
	out := api.RegistryRepair{
		Repaired: []api.RegistryFinding{}, SetAside: []api.RegistryQuarantined{},
		Left: []api.RegistryFinding{},
	}
	before, err := r.Check(ctx, o)
	if err != nil {
		return out, err
	}
	m := repairer{registry: r, report: &out}
	for _, step := range []func(context.Context) error{m.repairTemplates, m.finishPending, m.repairLayers} {
		if err := step(ctx); err != nil {
			return out, err
		}
	}
	after, err := r.Check(ctx, CheckOptions{})
	if err != nil {
		return out, err
	}
	out.Left, out.Lost = after.Findings, after.Lost
	out.Repaired = append(out.Repaired, fixedFindings(before.Findings, after.Findings)...)
	return out, nil
}

// RepairStorage repairs a storage that no registry has open.
func RepairStorage(ctx context.Context, o Options, how CheckOptions) (api.RegistryRepair, error) {
	before, err := CheckStorage(ctx, o.Base, CheckOptions{})
	if err != nil {
		return api.RegistryRepair{}, err
	}
	r, err := Open(ctx, o) // which finishes what a crash left undone
	if err != nil {
		return api.RegistryRepair{}, err
	}
	out, err := r.Repair(ctx, how)
	if err = errors.Join(err, r.Close()); err != nil {
		return out, err
	}
	out.Repaired = append(fixedFindings(before.Findings, append(out.Left, out.Repaired...)), out.Repaired...)
	return out, nil
}

// fixedFindings returns the findings of before that are missing from after.
func fixedFindings(before, after []api.RegistryFinding) []api.RegistryFinding {
	type key struct {
		template, layer, problem string
		version                  int
	}
	keyOf := func(f api.RegistryFinding) key {
		k := key{f.Template, f.Layer, f.Problem, -1}
		if f.Version != nil {
			k.version = *f.Version
		}
		return k
	}
	still := map[key]bool{}
	for _, f := range after {
		still[keyOf(f)] = true
	}
	out := []api.RegistryFinding{}
	for _, f := range before {
		if !still[keyOf(f)] {
			f.Loss = false
			out = append(out, f)
		}
	}
	return out
}

// repairer is one repair.
type repairer struct {
	registry *Registry
	report   *api.RegistryRepair
}

// repairTemplates restores templates that are readable again and quarantines those that are not.
func (m *repairer) repairTemplates(context.Context) error {
	for _, d := range m.registry.snapshot.Load().damaged {
		if err := m.repairTemplate(d); err != nil {
			return err
		}
	}
	return nil
}

func (m *repairer) repairTemplate(d layout.DamagedTemplate) error {
	r := m.registry
	r.metadataMu.Lock()
	defer r.metadataMu.Unlock()
	place := layout.TemplatePath(d.ID)
	t, err := r.dir.Template(d.ID)
	_, listErr := r.dir.ReadDir(place)
	switch {
	case err == nil:
		r.publishTemplate(t.ID, &t)
		r.snapshot.Load().templates[t.ID].scans.replaceWith(r.readScanNotes(t.ID))
		return nil
	case errors.Is(listErr, fs.ErrNotExist):
		r.publishTemplate(d.ID, nil)
		return nil
	case !isTemplateID(d.ID), errors.Is(err, layout.ErrNewer), listErr != nil, r.dir.IsLocalCopy():
		return nil // not the registry's, not damaged, or not to be changed now
	case r.dir.HasOnlyStaged(d.ID):
		if err := r.dir.RemoveAll("repair", place); err != nil {
			return err
		}
	default:
		target, err := r.dir.QuarantineTemplate(d.ID, r.opts.Now().UnixNano())
		if err != nil {
			return err
		}
		r.retainNamedLayers(target)
		m.report.SetAside = append(m.report.SetAside,
			api.RegistryQuarantined{What: "template " + d.ID, Place: target, Problem: d.Problem})
		r.log.Warn("damaged template moved to quarantine", "template", d.ID, "place", target, "problem", d.Problem)
	}
	r.publishTemplate(d.ID, nil)
	return nil
}

// finishPending finishes moves and rewrites text files.
func (m *repairer) finishPending(ctx context.Context) error {
	for _, e := range m.registry.snapshot.Load().sorted {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := m.finishPendingOf(e.template.ID); err != nil {
			return err
		}
	}
	return nil
}

func (m *repairer) finishPendingOf(id string) error {
	r := m.registry
	r.metadataMu.Lock()
	defer r.metadataMu.Unlock()
	e, err := r.findTemplate(id)
	if err != nil {
		return nil // deleted since then
	}
	if err := r.dir.PruneTemplate(e.template); err != nil {
		return err
	}
	for i := range e.template.Versions {
		if _, err := r.dir.RewriteListFiles(id, &e.template.Versions[i]); err != nil {
			return err
		}
	}
	return nil
}

// repairLayers adopts layer files that an operator put into the storage, restores referenced layers from the trash,
// and quarantines unreferenced ones that cannot be read.
func (m *repairer) repairLayers(ctx context.Context) error {
	r := m.registry
	stored, err := r.store.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range stored {
		if !r.hasStoredLayer(s.Digest) {
			r.adoptLayer(ctx, s)
		}
	}
	for _, root := range r.missingLayers() {
		r.restoreLayer(ctx, root)
	}
	for _, root := range r.unneededLayers() {
		if err := m.quarantineUnreadable(ctx, root); err != nil {
			return err
		}
	}
	return nil
}

// adoptLayer registers a layer file that was copied into the storage.
func (r *Registry) adoptLayer(ctx context.Context, s blob.LayerInfo) {
	defer r.layerMutexes.lock(s.Digest)()
	if _, err := r.readIndex(ctx, s.Digest); err != nil || r.hasStoredLayer(s.Digest) {
		return // unreadable ones are handled as unreferenced; the others were collected or are known by now
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.storedLayers[s.Digest] = &storedLayer{size: s.Size}
	delete(r.badLayers, s.Digest)
	r.log.Info("layer file adopted", "layer", s.Digest.String())
}

// missingLayers returns the layers that versions need and that are not stored.
func (r *Registry) missingLayers() []blob.Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []blob.Digest
	for root, versions := range r.layerRefs {
		if versions > 0 && r.storedLayers[root] == nil {
			out = append(out, root)
		}
	}
	return out
}

// unneededLayers returns the stored layers that nothing needs.
func (r *Registry) unneededLayers() []blob.Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []blob.Digest
	for root := range r.storedLayers {
		if !r.isReferencedLocked(root) {
			out = append(out, root)
		}
	}
	return out
}

// quarantineUnreadable quarantines an unreferenced layer that cannot be read. One that can be read stays available to
// pushes until it is collected.
func (m *repairer) quarantineUnreadable(ctx context.Context, root blob.Digest) error {
	r := m.registry
	_, err := r.readIndex(ctx, root)
	if !isDamage(err) {
		return context.Cause(ctx)
	}
	defer r.layerMutexes.lock(root)()
	r.mu.Lock()
	if r.isReferencedLocked(root) {
		r.mu.Unlock()
		return nil
	}
	delete(r.storedLayers, root)
	delete(r.badLayers, root)
	r.mu.Unlock()
	m.report.SetAside = append(m.report.SetAside,
		api.RegistryQuarantined{What: "layer " + root.String(), Place: layout.TrashDir, Problem: damageText(err)})
	return r.store.Quarantine(ctx, root, r.opts.Now())
}
