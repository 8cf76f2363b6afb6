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

func (s service) readyz(r *rest.Request) (any, error) { return nil, s.reg.Ready(r.Context()) }

// status leaves out the reports on templates that the caller may not list.
func (s service) status(r *rest.Request) (any, error) {
	caller, out := rest.CallerOf(r.Context()), s.reg.Status()
	out.Damaged = slices.DeleteFunc(out.Damaged,
		func(d api.RegistryDamage) bool { return !caller.CanSee(farm.ResourceTemplate, d.ID) })
	return out, nil
}

func (s service) disk(r *rest.Request) (any, error) { return s.reg.Disk(r.Context()) }

// pause keeps the registry from collecting layers and emptying its trash for some seconds.
func (s service) pause(r *rest.Request) (any, error) {
	if !r.Params.Has("seconds") {
		return nil, farm.Invalid("seconds", "is required")
	}
	seconds := r.Params.Int("seconds", 0, 0, int(registry.MaxPause/time.Second))
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return nil, s.reg.Pause(time.Duration(seconds) * time.Second)
}

func (s service) list(r *rest.Request) (any, error) {
	id := r.Params.String("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if id != "" {
		return s.detail(r, id)
	}
	return s.listed(r), nil
}

// listV1 returns an array of maps with one key each, from ID to name. With an ID, its versions have neither a
// creation date nor scan results.
func (s service) listV1(r *rest.Request) (any, error) {
	id := r.Params.String("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if id != "" {
		detail, err := s.detail(r, id)
		for i := range detail.Versions {
			detail.Versions[i].CreationDate, detail.Versions[i].Scan = 0, nil
		}
		return detail, err
	}
	all := s.listed(r)
	out := make([]map[string]string, 0, len(all))
	for _, t := range all {
		out = append(out, map[string]string{t.ID: t.Name})
	}
	return out, nil
}

func (s service) info(r *rest.Request) (any, error) {
	ref, err := readRef(r.Params)
	if err != nil {
		return nil, err
	}
	if err := may(r, ref.ID, rightConfig); err != nil {
		return nil, err
	}
	return s.reg.Info(ref)
}

func (s service) remove(r *rest.Request) (any, error) {
	id := r.Params.Required("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if err := may(r, id, rightDelete); err != nil {
		return nil, err
	}
	return rest.Null, s.reg.Delete(r.Context(), id)
}

func (s service) revert(r *rest.Request) (any, error) {
	ref, err := readRef(r.Params)
	if err != nil {
		return nil, err
	}
	if err := may(r, ref.ID, rightDelete); err != nil {
		return nil, err
	}
	return rest.Null, s.reg.Revert(r.Context(), ref)
}

func (s service) setArch(r *rest.Request) (any, error) {
	id, arch := r.Params.Required("id"), r.Params.Required("arch")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if err := may(r, id, rightArch); err != nil {
		return nil, err
	}
	return nil, s.reg.SetArch(r.Context(), id, arch)
}

// readRef reads the requested version. The number has two parameter names.
func readRef(p *rest.Params) (registry.Ref, error) {
	ref := registry.Ref{ID: p.Required("id"), Tag: p.String("tag"), ContentID: p.String("content_id")}
	for _, name := range p.Given("version", "number") {
		n := p.Int(name, 0, 0, math.MaxInt32)
		if ref.Number != nil && *ref.Number != n {
			p.RecordError(name, "version and number differ")
		}
		ref.Number = &n
	}
	return ref, p.Err()
}
