package controllerrest

import (
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/groups"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/filter"
	"github.com/buildyard/buildyard/internal/rest"
)

// maxGroupDescription is the longest description of a group, in bytes.
const maxGroupDescription = 1024

// noFallback removes the fallback of a group, as null does; "" means that it is not given.
const noFallback = "none"

// groupRoutes are the routes of node groups and their members.
func (s *server) groupRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /api/v1/group", Permission: "get_groups", Handle: s.listGroups},
		{Pattern: "POST /api/v1/group", Permission: "create_group", Handle: s.withIdempotencyKey(s.createGroup)},
		{Pattern: "PUT /api/v1/group", Permission: "update_group", Handle: s.updateGroup},
		{Pattern: "DELETE /api/v1/group", Permission: "delete_group", Handle: s.deleteGroup},
		{Pattern: "POST /api/v1/node/group", Permission: "add_node_to_group", Handle: s.addToGroups},
		{Pattern: "DELETE /api/v1/node/group", Permission: "remove_group_from_node", Handle: s.removeFromGroups},
	}
}

// groupToAPI converts a group to its API form.
func groupToAPI(g *farm.Group) api.Group {
	return api.Group{ID: g.ID, Name: g.Name, Description: g.Description, FallbackGroupID: orNull(g.Fallback)}
}

// groupFields are the fields of groups that a filter may name.
var groupFields = filter.Table[api.Group]{
	{Name: "id", IsDefault: true, Text: func(g api.Group) string { return g.ID }},
	{Name: "name", IsDefault: true, Text: func(g api.Group) string { return g.Name }},
	{Name: "description", IsDefault: true, Text: func(g api.Group) string { return g.Description }},
	{Name: "fallback", Text: func(g api.Group) string {
		if g.FallbackGroupID == nil {
			return ""
		}
		return *g.FallbackGroupID
	}},
}

func (s *server) listGroups(r *rest.Request) (any, error) {
	fits := filterParam(r.Params, groupFields)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	all := s.controller.Groups.List()
	list := make([]api.Group, len(all))
	for i, g := range all {
		list[i] = groupToAPI(g)
	}
	return filterList(list, fits), nil
}

func (s *server) createGroup(r *rest.Request) (any, error) {
	edit := groupEdit(r.Params)
	if edit.Name == nil {
		r.Params.Required("name")
	}
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	g, err := s.controller.Groups.Create(r.Context(), edit)
	if err != nil {
		return nil, err
	}
	return groupToAPI(g), nil
}

func (s *server) updateGroup(r *rest.Request) (any, error) {
	id := r.Params.Required("id")
	edit := groupEdit(r.Params)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return nil, s.controller.Groups.Update(r.Context(), id, edit)
}

func (s *server) deleteGroup(r *rest.Request) (any, error) {
	id := r.Params.Required("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return nil, s.controller.Groups.Delete(r.Context(), id)
}

// groupEdit reads the changes of a group.
func groupEdit(p *rest.Params) (edit groups.Edit) {
	if p.Has("name") {
		name := strings.TrimSpace(p.Text("name", maxName))
		if name == "" {
			p.RecordError("name", "must not be empty")
		}
		edit.Name = &name
	}
	if p.Has("description") {
		text := strings.TrimSpace(p.Text("description", maxGroupDescription))
		edit.Description = &text
	}
	if p.Has("fallback_group_id") || p.IsNull("fallback_group_id") {
		id := p.String("fallback_group_id")
		if id == noFallback {
			id = ""
		}
		edit.Fallback = &id
	}
	return edit
}

func (s *server) addToGroups(r *rest.Request) (any, error) {
	node, ids, err := readMembership(r)
	if err != nil {
		return nil, err
	}
	return nil, s.controller.Groups.AddNode(r.Context(), node, ids)
}

func (s *server) removeFromGroups(r *rest.Request) (any, error) {
	node, ids, err := readMembership(r)
	if err != nil {
		return nil, err
	}
	return nil, s.controller.Groups.RemoveNode(r.Context(), node, ids)
}

// readMembership reads one node, which the caller may configure, and some groups.
func readMembership(r *rest.Request) (node string, ids []string, err error) {
	p := r.Params
	nodes := p.Strings("node_ids")
	ids = p.Strings("group_ids")
	switch {
	case p.Err() != nil:
	case !p.Has("node_ids"):
		p.RecordError("node_ids", "is required")
	case !p.Has("group_ids"):
		p.RecordError("group_ids", "is required")
	case len(nodes) != 1:
		p.RecordError("node_ids", "must have exactly one ID")
	case len(ids) == 0 || len(ids) > groups.MaxPerNode:
		p.RecordError("group_ids", "must have 1 to %d IDs", groups.MaxPerNode)
	}
	if err := p.Err(); err != nil {
		return "", nil, err
	}
	return nodes[0], ids, requireNodeRight(r, nodes[0], rightConfig)
}
