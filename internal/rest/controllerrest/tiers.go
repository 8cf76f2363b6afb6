package controllerrest

import (
	"encoding/json"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// tierGate is a route, or a parameter of one, that needs a tier.
type tierGate struct {
	pattern      string // of the route
	param        string // "": the whole route
	tier         farm.Tier
	feature      string                   // for a whole route: its feature, in the plural
	isParamGiven func(*rest.Request) bool // nil: a parameter is given if it is present
}

// nodeGroups is the feature of the routes of groups.
const nodeGroups = "Node groups"

// tierGates lists all features that need a license tier. Everything else is available in all tiers.
var tierGates = []tierGate{
	{pattern: "POST /api/v1/vm", param: "group_id", tier: farm.TierEnterprise},
	{pattern: "POST /api/v1/vm", param: "priority", tier: farm.TierEnterprise, isParamGiven: isPriorityGiven},
	{pattern: "POST /api/v1/vm", param: "usb_device", tier: farm.TierEnterprise},
	{pattern: "POST /api/v1/rpc/vm/restart", param: "usb_device", tier: farm.TierEnterprise},
	{pattern: "POST /api/v1/registry/vm/distribute", param: "group_id", tier: farm.TierEnterprise},
	{pattern: "POST /api/v1/registry/vm/distribute", param: "group", tier: farm.TierEnterprise},
	{pattern: "GET /api/v1/stats/series", param: "group_id", tier: farm.TierEnterprise},
	{pattern: "POST /api/v1/group", tier: farm.TierEnterprise, feature: nodeGroups},
	{pattern: "GET /api/v1/group", tier: farm.TierEnterprise, feature: nodeGroups},
	{pattern: "PUT /api/v1/group", tier: farm.TierEnterprise, feature: nodeGroups},
	{pattern: "DELETE /api/v1/group", tier: farm.TierEnterprise, feature: nodeGroups},
	{pattern: "POST /api/v1/node/group", tier: farm.TierEnterprise, feature: nodeGroups},
	{pattern: "DELETE /api/v1/node/group", tier: farm.TierEnterprise, feature: nodeGroups},
	{pattern: "POST /api/v1/pool", param: "group_id", tier: farm.TierEnterprise, isParamGiven: isPoolGroupGiven},
	{pattern: "PUT /api/v1/pool", param: "group_id", tier: farm.TierEnterprise, isParamGiven: isPoolGroupGiven},
	{pattern: "GET /api/v1/usb", tier: farm.TierEnterprise, feature: "USB devices"},
	{pattern: "POST " + api.PathJoin, param: "groups", tier: farm.TierEnterprise, isParamGiven: joinsGroups},
}

// isPriorityGiven reports whether a priority differs from the default, which needs no license tier.
func isPriorityGiven(r *rest.Request) bool {
	return priorityParam(r.Params) != farm.DefaultPriority
}

// isPoolGroupGiven reports whether a pool is to have a group.
func isPoolGroupGiven(r *rest.Request) bool {
	return r.Params.Has("group_id") && r.Params.String("group_id") != noGroup
}

// joinsGroups reports whether a join request, whose body is typed, names groups.
func joinsGroups(r *rest.Request) bool {
	var in struct{ Groups []string }
	return json.Unmarshal(r.Params.RawBody(), &in) == nil && len(in.Groups) > 0
}

// isGiven reports whether a request uses the gated feature.
func (g tierGate) isGiven(r *rest.Request) bool {
	switch {
	case g.param == "":
		return true
	case g.isParamGiven != nil:
		return g.isParamGiven(r)
	default:
		return r.Params.Has(g.param)
	}
}

// refusal is the response to a request that the active license does not cover.
func (g tierGate) refusal(have farm.Tier) error {
	if g.param == "" {
		return farm.Refused(
			"%s require the license tier %s, and this controller has %s: install a license (SVC_LICENSE_FILE)",
			g.feature, g.tier, have)
	}
	return farm.Refused(
		"%s requires the license tier %s, and this controller has %s: leave it out, or install a license "+
			"(SVC_LICENSE_FILE)",
		g.param, g.tier, have)
}

// withTierGates returns the routes with their gates. License tiers are checked only here.
func (s *server) withTierGates(routes []rest.Route) []rest.Route {
	at := map[string][]tierGate{}
	for _, g := range tierGates {
		at[g.pattern] = append(at[g.pattern], g)
	}
	for i, route := range routes {
		mine := at[route.Pattern]
		if len(mine) == 0 {
			continue
		}
		routes[i].Handle = func(r *rest.Request) (any, error) {
			for _, g := range mine {
				if have := s.controller.License.Tier(); !have.Covers(g.tier) && g.isGiven(r) {
					return nil, g.refusal(have)
				}
			}
			return route.Handle(r)
		}
	}
	return routes
}
