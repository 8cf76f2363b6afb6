package controllerrest

import (
	"math"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/rest"
)

// templateRoutes returns the routes of the registry's templates and their cached versions on nodes.
func (s *server) templateRoutes() []rest.Route {
	const templates, nodes = "/api/v1/registry/vm", "/api/v1/registry/vm/distribute"
	return []rest.Route{
		{Pattern: "GET " + templates, Permission: "registry_list", Handle: s.listTemplates},
		{Pattern: "GET " + templates + "/page", Permission: "registry_list", Handle: s.pageTemplates},
		{Pattern: "GET " + templates + "/nodes", Permission: "list_nodes", Handle: s.listTemplateNodes},
		{Pattern: "GET " + templates +
			"/scan", Permission: "registry_list", Waits: true, HandleRaw: s.proxyTo("/registry/v2/vm/scan")},
		{Pattern: "DELETE " + templates, Permission: "registry_delete", OwnEvents: true, Handle: s.deleteTemplate},
		{Pattern: "DELETE /api/v1/registry/revert", Permission: "registry_delete", Handle: s.revertTemplate},

		{Pattern: "GET " + templates + "/remove", Permission: "registry_list", Handle: s.listRemovals},
		{Pattern: "DELETE " + templates + "/remove", Permission: "registry_delete", Handle: s.removeFromNodes},

		{Pattern: "GET " + nodes, Permission: "registry_distribute_status", Handle: s.listDistributions},
		{Pattern: "POST " +
			nodes, Permission: "registry_distribute", OwnEvents: true, Handle: s.withIdempotencyKey(s.distribute)},
		{Pattern: "DELETE " + nodes, Permission: "registry_distribute", Handle: s.cancelDistribution},
	}
}

// listTemplates returns the list, or one template with its versions. The faster first version of the list has
// no sizes and architectures.
func (s *server) listTemplates(r *rest.Request) (any, error) {
	version := r.Params.OneOf("apiVer", "v1", "v2")
	id, part, fits := r.Params.String("id"), sliceParam(r.Params), filterParam(r.Params, templateFields)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if id != "" {
		return s.controller.Templates.Get(r.Context(), id)
	}
	list, err := s.controller.Templates.List(r.Context())
	if err != nil {
		return nil, err
	}
	list = sliceList(filterList(list, fits), part, func(t api.Template) string { return t.ID })
	if version != "v1" {
		return rest.NonNil(list), nil
	}
	type item struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	short := make([]item, len(list))
	for i, t := range list {
		short[i] = item{t.ID, t.Name}
	}
	return short, nil
}

func (s *server) deleteTemplate(r *rest.Request) (any, error) {
	id := r.Params.Required("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return nil, s.controller.Templates.Delete(r.Context(), id)
}

func (s *server) revertTemplate(r *rest.Request) (any, error) {
	id, tag, number := r.Params.Required("id"), r.Params.Text("tag", maxTag), versionParam(r.Params)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return rest.Null, s.controller.Templates.Revert(r.Context(), id, tag, number)
}

// versionParam reads the serial number of a version, which has two parameter names; nil when it is not given.
func versionParam(p *rest.Params) *int {
	var number *int
	for _, name := range p.Given("version", "number") {
		n := p.Int(name, 0, 0, math.MaxInt32)
		if number != nil && *number != n {
			p.RecordError(name, "version and number differ")
		}
		number = &n
	}
	return number
}
