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
		{Pattern: "GET " + templates, Permission: "registry_list", Do: s.listTemplates},
		{Pattern: "GET " + templates + "/page", Permission: "registry_list", Do: s.pageTemplates},
		{Pattern: "GET " + templates + "/nodes", Permission: "list_nodes", Do: s.listTemplateNodes},
		{Pattern: "GET " + templates +
			"/scan", Permission: "registry_list", Hangs: true, Raw: s.pass("/registry/v2/vm/scan")},
		{Pattern: "DELETE " + templates, Permission: "registry_delete", OwnEvents: true, Do: s.deleteTemplate},
		{Pattern: "DELETE /api/v1/registry/revert", Permission: "registry_delete", Do: s.revertTemplate},

		{Pattern: "GET " + templates + "/remove", Permission: "registry_list", Do: s.listRemovals},
		{Pattern: "DELETE " + templates + "/remove", Permission: "registry_delete", Do: s.removeFromNodes},

		{Pattern: "GET " + nodes, Permission: "registry_distribute_status", Do: s.listDistributions},
		{Pattern: "POST " + nodes, Permission: "registry_distribute", OwnEvents: true, Do: s.once(s.distribute)},
		{Pattern: "DELETE " + nodes, Permission: "registry_distribute", Do: s.cancelDistribution},
	}
}

// listTemplates returns the list, or one template with its versions. The faster first version of the list has
// no sizes and architectures.
func (s *server) listTemplates(r *rest.Request) (any, error) {
	version := r.Params.OneOf("apiVer", "v1", "v2")
	id, part, fits := r.Params.String("id"), sliceOf(r.Params), filterOf(r.Params, templateFields)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if id != "" {
		return s.c.Templates.Get(r.Context(), id)
	}
	list, err := s.c.Templates.List(r.Context())
	if err != nil {
		return nil, err
	}
	list = cut(keptFields(list, fits), part, func(t api.Template) string { return t.ID })
	if version != "v1" {
		return rest.List(list), nil
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
	return nil, s.c.Templates.Delete(r.Context(), id)
}

func (s *server) revertTemplate(r *rest.Request) (any, error) {
	id, tag, number := r.Params.Required("id"), r.Params.Text("tag", maxTag), versionNumber(r.Params)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return rest.Null, s.c.Templates.Revert(r.Context(), id, tag, number)
}

// versionNumber reads the serial number of a version, which has two parameter names; nil when it is not given.
func versionNumber(p *rest.Params) *int {
	var number *int
	for _, name := range p.Given("version", "number") {
		n := p.Int(name, 0, 0, math.MaxInt32)
		if number != nil && *number != n {
			p.Fail(name, "version and number differ")
		}
		number = &n
	}
	return number
}
