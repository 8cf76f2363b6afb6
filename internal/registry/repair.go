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
	m := repairer{r: r, out: &out}
	for _, step := range []func(context.Context) error{m.damaged, m.tidy, m.layers} {
		if err := step(ctx); err != nil {
			return out, err
		}
	}
	after, err := r.Check(ctx, CheckOptions{})
	if err != nil {
		return out, err
	}
	out.Left, out.Lost = after.Findings, after.Lost
	out.Repaired = append(out.Repaired, fixed(before.Findings, after.Findings)...)
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
	out.Repaired = append(fixed(before.Findings, append(out.Left, out.Repaired...)), out.Repaired...)
	return out, nil
}

// fixed returns the findings of before that are missing from after.
func fixed(before, after []api.RegistryFinding) []api.RegistryFinding {
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
	r   *Registry
	out *api.RegistryRepair
}

// damaged restores templates that are readable again and quarantines those that are not.
func (m *repairer) damaged(context.Context) error {
	for _, d := range m.r.snap.Load().damaged {
		if err := m.template(d); err != nil {
			return err
		}
	}
	return nil
}

func (m *repairer) template(d layout.Damage) error {
	r := m.r
	r.write.Lock()
	defer r.write.Unlock()
	place := layout.TemplatePath(d.ID)
	t, err := r.dir.Template(d.ID)
	_, listErr := r.dir.Names(place)
	switch {
	case err == nil:
		r.swap(t.ID, &t)
		r.snap.Load().templates[t.ID].scans.take(r.readScans(t.ID))
		return nil
	case errors.Is(listErr, fs.ErrNotExist):
		r.swap(d.ID, nil)
		return nil
	case !isID(d.ID), errors.Is(err, layout.ErrNewer), listErr != nil:
		return nil // not the registry's, not damaged, or not to be changed now
	case r.dir.OnlyStaged(d.ID):
		if err := r.dir.RemoveAll("repair", place); err != nil {
			return err
		}
	default:
		target, err := r.dir.Quarantine(d.ID, r.o.Now().UnixNano())
		if err != nil {
			return err
		}
		r.keepNamed(target)
		m.out.SetAside = append(m.out.SetAside,
			api.RegistryQuarantined{What: "template " + d.ID, Place: target, Problem: d.Problem})
		r.log.Warn("damaged template moved to quarantine", "template", d.ID, "place", target, "problem", d.Problem)
	}
	r.swap(d.ID, nil)
	return nil
}

// tidy finishes moves and rewrites text files.
func (m *repairer) tidy(ctx context.Context) error {
	for _, e := range m.r.snap.Load().order {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := m.tidyTemplate(e.t.ID); err != nil {
			return err
		}
	}
	return nil
}

func (m *repairer) tidyTemplate(id string) error {
	r := m.r
	r.write.Lock()
	defer r.write.Unlock()
	e, err := r.lookup(id)
	if err != nil {
		return nil // deleted since then
	}
	if err := r.dir.Prune(e.t); err != nil {
		return err
	}
	for i := range e.t.Versions {
		if _, err := r.dir.RewriteLists(id, &e.t.Versions[i]); err != nil {
			return err
		}
	}
	return nil
}

// layers adopts layer files that an operator put into the storage, restores referenced layers from the trash,
// and quarantines unreferenced ones that cannot be read.
func (m *repairer) layers(ctx context.Context) error {
	r := m.r
	stored, err := r.store.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range stored {
		if !r.holds(s.Root) {
			r.adopt(ctx, s)
		}
	}
	for _, root := range r.missing() {
		r.restore(ctx, root)
	}
	for _, root := range r.unneeded() {
		if err := m.assess(ctx, root); err != nil {
			return err
		}
	}
	return nil
}

// adopt registers a layer file that was copied into the storage.
func (r *Registry) adopt(ctx context.Context, s blob.Stored) {
	defer r.roots.lock(s.Root)()
	if _, err := r.readIndex(ctx, s.Root); err != nil || r.holds(s.Root) {
		return // unreadable ones are handled as unreferenced; the others were collected or are known by now
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[s.Root] = &storedLayer{size: s.Size}
	delete(r.bad, s.Root)
	r.log.Info("layer file adopted", "layer", s.Root.String())
}

// missing returns the layers that versions need and that are not stored.
func (r *Registry) missing() []blob.Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []blob.Digest
	for root := range r.bad {
		if r.held[root] == nil {
			out = append(out, root)
		}
	}
	return out
}

// unneeded returns the stored layers that nothing needs.
func (r *Registry) unneeded() []blob.Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []blob.Digest
	for root := range r.held {
		if !r.referencedLocked(root) {
			out = append(out, root)
		}
	}
	return out
}

// assess quarantines an unreferenced layer that cannot be read. One that can be read stays available to pushes
// until it is collected.
func (m *repairer) assess(ctx context.Context, root blob.Digest) error {
	r := m.r
	_, err := r.readIndex(ctx, root)
	if !isDamage(err) {
		return context.Cause(ctx)
	}
	defer r.roots.lock(root)()
	r.mu.Lock()
	if r.referencedLocked(root) {
		r.mu.Unlock()
		return nil
	}
	delete(r.held, root)
	delete(r.bad, root)
	r.mu.Unlock()
	m.out.SetAside = append(m.out.SetAside,
		api.RegistryQuarantined{What: "layer " + root.String(), Place: layout.TrashDir, Problem: damageOf(err)})
	return r.store.Quarantine(ctx, root, r.o.Now())
}
