package registryrest

import (
	"math"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
)

func (s service) livez(*rest.Request) (any, error) { return nil, nil }

func (s service) readyz(r *rest.Request) (any, error) { return nil, s.registry.Ready(r.Context()) }

// getStatus leaves out the reports on templates that the caller may not list.
func (s service) getStatus(r *rest.Request) (any, error) {
	caller, out := rest.CallerOf(r.Context()), s.registry.Status()
	out.Damaged = slices.DeleteFunc(out.Damaged,
		func(d api.RegistryDamage) bool { return !caller.CanSee(farm.ResourceTemplate, d.ID) })
	return out, nil
}

func (s service) getDisk(r *rest.Request) (any, error) { return s.registry.DiskInfo(r.Context()) }

// pauseGC keeps the registry from collecting layers and emptying its trash for some seconds.
func (s service) pauseGC(r *rest.Request) (any, error) {
	if !r.Params.Has("seconds") {
		return nil, farm.Invalid("seconds", "is required")
	}
	seconds := r.Params.Int("seconds", 0, 0, int(registry.MaxGCPause/time.Second))
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return nil, s.registry.PauseGC(time.Duration(seconds) * time.Second)
}

func (s service) listTemplates(r *rest.Request) (any, error) {
	id := r.Params.String("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if id != "" {
		return s.visibleTemplate(r, id)
	}
	return s.visibleTemplates(r), nil
}

// listTemplatesV1 returns an array of maps with one key each, from ID to name. With an ID, its versions have neither a
// creation date nor scan results.
func (s service) listTemplatesV1(r *rest.Request) (any, error) {
	id := r.Params.String("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if id != "" {
		detail, err := s.visibleTemplate(r, id)
		for i := range detail.Versions {
			detail.Versions[i].CreationDate, detail.Versions[i].Scan = 0, nil
		}
		return detail, err
	}
	all := s.visibleTemplates(r)
	out := make([]map[string]string, 0, len(all))
	for _, t := range all {
		out = append(out, map[string]string{t.ID: t.Name})
	}
	return out, nil
}

func (s service) getConfig(r *rest.Request) (any, error) {
	ref, err := readRef(r.Params)
	if err != nil {
		return nil, err
	}
	if err := checkRight(r, ref.ID, rightConfig); err != nil {
		return nil, err
	}
	return s.registry.VersionConfig(ref)
}

func (s service) deleteTemplate(r *rest.Request) (any, error) {
	id := r.Params.Required("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if err := checkRight(r, id, rightDelete); err != nil {
		return nil, err
	}
	return rest.Null, s.registry.Delete(r.Context(), id)
}

func (s service) revert(r *rest.Request) (any, error) {
	ref, err := readRef(r.Params)
	if err != nil {
		return nil, err
	}
	if err := checkRight(r, ref.ID, rightDelete); err != nil {
		return nil, err
	}
	return rest.Null, s.registry.Revert(r.Context(), ref)
}

func (s service) setArch(r *rest.Request) (any, error) {
	id, arch := r.Params.Required("id"), r.Params.Required("arch")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if err := checkRight(r, id, rightArch); err != nil {
		return nil, err
	}
	return nil, s.registry.SetArch(r.Context(), id, arch)
}

// readRef reads the requested version. The number has two parameter names.
func readRef(p *rest.Params) (registry.VersionRef, error) {
	ref := registry.VersionRef{ID: p.Required("id"), Tag: p.String("tag"), ContentID: p.String("content_id")}
	for _, name := range p.Given("version", "number") {
		n := p.Int(name, 0, 0, math.MaxInt32)
		if ref.Number != nil && *ref.Number != n {
			p.RecordError(name, "version and number differ")
		}
		ref.Number = &n
	}
	return ref, p.Err()
}
