package controllerrest

import (
	"cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

const maxRangeName = 16 // bytes of the name of a range

// usagePermissions are what the usage needs in addition to its route: the permission of the list that has the same
// names.
var usagePermissions = map[string]farm.Permission{
	api.ByGroup: "get_groups", api.ByOwner: "list_vms", api.ByTemplate: "registry_list",
}

// series returns the load over time: of the cloud, of a node, of a group, or sparklines of several of them.
func (s *server) series(r *rest.Request) (any, error) {
	p := r.Params
	over := cmp.Or(p.Text("range", maxRangeName), api.RangeHour)
	by := p.OneOf("by", api.ByNode, api.ByGroup)
	nodes, group := p.CommaList("node_id"), p.String("group_id")
	switch {
	case p.Err() != nil:
	case len(nodes) > 0 && group != "":
		p.RecordError("group_id", "must not be given together with node_id")
	case by == api.ByNode && (len(nodes) == 0 || len(nodes) > api.MaxSparklines):
		p.RecordError("node_id", "must have 1 to %d IDs with by=node", api.MaxSparklines)
	case by == api.ByGroup && (len(nodes) > 0 || group != ""):
		p.RecordError("by", "lists all groups: leave out node_id and group_id")
	case by == "" && len(nodes) > 1:
		p.RecordError("node_id", "must have one ID, or by=node with it")
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	if err := requireSeriesPermission(r, len(nodes) > 0, by == api.ByGroup || group != ""); err != nil {
		return nil, err
	}
	switch {
	case by == api.ByNode:
		return s.nodeSparklines(r, over, nodes)
	case by == api.ByGroup:
		return s.groupSparklines(over)
	case len(nodes) == 1:
		return s.nodeSeries(r, over, nodes[0])
	case group != "":
		return s.groupSeries(r, over, group)
	}
	return s.controller.Usage.Series(over)
}

// requireSeriesPermission refuses callers that may not list the nodes or groups of a series.
func requireSeriesPermission(r *rest.Request, ofNodes, ofGroups bool) error {
	caller := rest.CallerOf(r.Context())
	switch {
	case ofNodes:
		return caller.RequirePermission("list_nodes")
	case ofGroups:
		return caller.RequirePermission("get_groups")
	}
	return nil
}

// nodeSparklines leaves out the nodes that the caller does not see.
func (s *server) nodeSparklines(r *rest.Request, over string, ids []string) (any, error) {
	seen := s.visibilityOf(r)
	visible := make([]string, 0, len(ids))
	for _, id := range ids {
		if seen.seesNode(id) {
			visible = append(visible, id)
		}
	}
	return s.controller.Usage.NodeSparklines(over, visible)
}

// groupSparklines returns all groups over time, with their present load.
func (s *server) groupSparklines(over string) (any, error) {
	out, err := s.controller.Usage.GroupSparklines(over)
	if err != nil {
		return nil, err
	}
	loads, pending := s.controller.Nodes.GroupLoads(), s.controller.Usage.PendingByGroup()
	for i := range out.Series {
		group := &out.Series[i]
		load := loads[group.ID]
		group.Now = &api.GroupLoad{
			Nodes: load.Nodes, ActiveNodes: load.Active, Pending: pending[group.ID], Slots: slotsToAPI(load.Slots),
		}
		group.Now.Slots.Free = load.Free
	}
	return out, nil
}

func (s *server) nodeSeries(r *rest.Request, over, id string) (any, error) {
	_, err := s.controller.Nodes.Get(r.Context(), id)
	if err == nil && !s.visibilityOf(r).seesNode(id) {
		err = farm.NotFound()
	}
	if err != nil {
		return nil, err
	}
	return s.controller.Usage.NodeSeries(over, id)
}

func (s *server) groupSeries(r *rest.Request, over, id string) (any, error) {
	if _, _, err := s.controller.Groups.Get(r.Context(), id); err != nil {
		return nil, err
	}
	return s.controller.Usage.GroupSeries(over, id)
}

// usageReport returns the usage by group, owner or template.
func (s *server) usageReport(r *rest.Request) (any, error) {
	by := r.Params.OneOf("by", api.ByGroup, api.ByOwner, api.ByTemplate)
	over := cmp.Or(r.Params.Text("range", maxRangeName), api.RangeDay)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	by = cmp.Or(by, api.ByGroup)
	if err := rest.CallerOf(r.Context()).RequirePermission(usagePermissions[by]); err != nil {
		return nil, err
	}
	var show func(string) bool
	if seen := s.visibilityOf(r); by == api.ByTemplate && seen.isRestricted {
		show = seen.seesTemplate
	}
	return s.controller.Usage.Report(by, over, show)
}
