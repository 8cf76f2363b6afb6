package controllerrest

import (
	"cmp"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// maxRights is how many nodes one request for rights may name.
const maxRights = 1000

// callerRights returns what the caller may do here, with the named nodes, and with a template. The result for a
// missing object is the same as for one without rights.
func (s *server) callerRights(r *rest.Request) (any, error) {
	p := r.Params
	nodes := strings.FieldsFunc(p.Text("nodes", maxRights*37), func(c rune) bool { return c == ',' })
	template := p.Text("template", maxName)
	if len(nodes) > maxRights {
		p.RecordError("nodes", "must name at most %d nodes", maxRights)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	caller := rest.CallerOf(r.Context())
	own := caller.RightsOn(farm.ServiceController, farm.ResourceNode, nodes)
	out := api.Rights{
		User: cmp.Or(caller.KeyID, caller.Name), Credential: string(caller.Method),
		Root: caller.Unlimited(), Enforced: own.Enforced, Managed: own.Managed,
		Groups: rest.NonNil(caller.ActsAs()), Permissions: own.Permissions, Nodes: own.Templates,
	}
	if ends := caller.Ends; !ends.IsZero() {
		ends = ends.UTC().Truncate(time.Second)
		out.Expires = &ends
	}
	if template == "" {
		return out, nil
	}
	var err error
	out.Registry, err = s.controller.Templates.Rights(r.Context(), strings.ToLower(template))
	return out, err
}
