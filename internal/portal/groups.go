package portal

import (
	"net/url"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/format"
)

func (p *portal) groupPages() []page {
	return []page{{pattern: "/groups", templateName: "groups", title: "Node groups", topics: Groups |
		Nodes | Pools, buildView: listGroups}}
}

func (p *portal) groupActions() []action {
	return []action{
		{
			pattern: "/groups/new", templateName: "groupedit", title: "Create group", buildForm: askGroup,
			perform: doGroup,
		},
		{
			pattern: "/groups/{id}/edit", templateName: "groupedit", title: "Edit group", buildForm: askGroup,
			perform: doGroup,
		},
		{
			pattern: "/groups/{id}/delete", templateName: "groupdelete", title: "Delete group",
			buildForm: askDeleteGroup,
			perform:   doDeleteGroup,
		},
	}
}

// groupRow is a group of nodes with how many nodes are in it.
type groupRow struct {
	api.Group
	Fallback string // name of the group where its instances may start too
	Nodes    int
	Pools    int // warm pools for its starts
}

// groupPath returns the address that shows one group, on whichever page of the list it would be.
func groupPath(id string) string { return groupsOfID + url.QueryEscape(id) }

const groupsOfID = "/groups?q=id%3A" // what the addresses of groups begin with

// groupList is the page of the groups.
type groupList struct {
	Filter, FilterError string
	Total               int
	Rows                []groupRow
	Pager               pager
	NodesHiddenReason   string // it is not shown how many there are
	PoolsHiddenReason   string
	CurlCommand         string
}

func listGroups(v *visit) (any, error) {
	a := v.tableQuery("")
	a.sort = ""
	list := groupList{Filter: a.filter, CurlCommand: curlCommand(v, "GET",
		format.Path("/api/v1/group", "filter", a.filter), "")}
	all, err := v.Groups(v, client.ListOptions{Filter: a.filter})
	if list.FilterError = filterError(err, a.filter); list.FilterError != "" {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	others := all
	if a.filter != "" {
		if others, err = v.Groups(v, client.ListOptions{}); err != nil {
			return nil, err
		}
	}
	for _, g := range others {
		names[g.ID] = g.Name
	}
	nodes, err := v.NodePage(v, client.PageOptions{Limit: 1})
	list.NodesHiddenReason = notShownReason(err)
	pools, hidden := v.poolsByGroup()
	list.PoolsHiddenReason = hidden
	slices.SortFunc(all, func(a, b api.Group) int { return strings.Compare(a.Name, b.Name) })
	list.Total = len(all)
	for _, g := range pageRows(&a, all) {
		row := groupRow{Group: g, Nodes: nodes.Groups[g.ID], Pools: pools[g.ID]}
		if g.FallbackGroupID != nil {
			row.Fallback = names[*g.FallbackGroupID]
		}
		list.Rows = append(list.Rows, row)
	}
	list.Pager = a.pager(len(list.Rows), list.Total)
	return list, nil
}

// groupForm is the form of a group; that of a new one has no id.
type groupForm struct {
	api.Group
	Fallback         string
	Others           []api.Group
	PendingInstances int // instances that wait in it
}

func loadGroupForm(v *visit) (groupForm, error) {
	id := v.request.PathValue("id")
	all, err := v.Groups(v, client.ListOptions{})
	if err != nil || id == "" {
		return groupForm{Others: all}, err
	}
	i := slices.IndexFunc(all, func(g api.Group) bool { return g.ID == id })
	if i < 0 {
		return groupForm{}, &client.Error{Code: client.ErrNotFound, Message: "Group not found"}
	}
	f := groupForm{Group: all[i], Others: slices.Delete(slices.Clone(all), i, i+1)}
	if f.FallbackGroupID != nil {
		f.Fallback = *f.FallbackGroupID
	}
	return f, nil
}

func askGroup(v *visit) (any, error) {
	f, err := loadGroupForm(v)
	if f.ID != "" {
		v.title = "Edit group " + f.Name
	}
	return f, err
}

func doGroup(v *visit) (actionResult, error) {
	id := v.request.PathValue("id")
	var r client.GroupRequest
	if isFieldChanged(v.query, "name") {
		r.Name = strings.TrimSpace(v.query.Get("name"))
	}
	if isFieldChanged(v.query, "description") {
		about := strings.TrimSpace(v.query.Get("description"))
		r.Description = &about
	}
	if isFieldChanged(v.query, "fallback_group_id") {
		r.FallbackID = v.query.Get("fallback_group_id")
		if r.FallbackID == "" && id != "" {
			r.FallbackID = client.NoFallback
		}
	}
	if id == "" {
		g, err := v.CreateGroup(v, r)
		return actionResult{ResultPath: groupPath(g.ID)}, err
	}
	return actionResult{ResultPath: "/groups"}, v.UpdateGroup(v, id, r)
}

func askDeleteGroup(v *visit) (any, error) {
	f, err := loadGroupForm(v)
	if err != nil {
		return nil, err
	}
	v.title = "Delete group " + f.Name
	if page, err := v.InstancePage(v,
		client.PageOptions{Filter: "phase:queued group:" + f.ID, Limit: 1}); err == nil {
		f.PendingInstances = page.Total
	}
	return f, nil
}

func doDeleteGroup(v *visit) (actionResult, error) {
	return actionResult{ResultPath: "/groups"}, v.DeleteGroup(v, v.request.PathValue("id"))
}
