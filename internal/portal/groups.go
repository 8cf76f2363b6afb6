package portal

import (
	"net/url"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

func (p *portal) groupPages() []page {
	return []page{{path: "/groups", name: "groups", title: "Node groups", topic: Groups | Nodes, load: listGroups}}
}

func (p *portal) groupActions() []action {
	return []action{
		{path: "/groups/new", name: "groupedit", title: "Create group", ask: askGroup, do: doGroup},
		{path: "/groups/{id}/edit", name: "groupedit", title: "Edit group", ask: askGroup, do: doGroup},
		{
			path: "/groups/{id}/delete", name: "groupdelete", title: "Delete group", ask: askDeleteGroup,
			do: doDeleteGroup,
		},
	}
}

// groupRow is a group of nodes with how many nodes are in it.
type groupRow struct {
	api.Group
	Fallback string // name of the group where its instances may start too
	Nodes    int
}

// groupList is the page of the groups.
type groupList struct {
	Filter, Wrong string
	Total         int
	Rows          []groupRow
	Pager         pager
	NodesWhy      string // it is not shown how many there are
	Curl          string
}

func listGroups(v *visit) (any, error) {
	a := v.asked("")
	a.sort = ""
	list := groupList{Filter: a.filter, Curl: curl(v, "GET", query("/api/v1/group", "filter", a.filter), "")}
	all, err := v.Groups(v, client.ListOptions{Filter: a.filter})
	if list.Wrong = wrongFilter(err, a.filter); list.Wrong != "" {
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
	list.NodesWhy = refusal(err)
	slices.SortFunc(all, func(a, b api.Group) int { return strings.Compare(a.Name, b.Name) })
	list.Total = len(all)
	for _, g := range part(&a, all) {
		row := groupRow{Group: g, Nodes: nodes.Groups[g.ID]}
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
	Fallback string
	Others   []api.Group
	Waiting  int // instances that wait in it
}

func oneGroup(v *visit) (groupForm, error) {
	id := v.r.PathValue("id")
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
	f, err := oneGroup(v)
	if f.ID != "" {
		v.title = "Edit group " + f.Name
	}
	return f, err
}

func doGroup(v *visit) (actionResult, error) {
	id := v.r.PathValue("id")
	var r client.GroupRequest
	if changed(v.q, "name") {
		r.Name = strings.TrimSpace(v.q.Get("name"))
	}
	if changed(v.q, "description") {
		about := strings.TrimSpace(v.q.Get("description"))
		r.Description = &about
	}
	if changed(v.q, "fallback_group_id") {
		r.FallbackID = v.q.Get("fallback_group_id")
		if r.FallbackID == "" && id != "" {
			r.FallbackID = client.NoFallback
		}
	}
	if id == "" {
		g, err := v.CreateGroup(v, r)
		return actionResult{To: "/groups#g-" + url.PathEscape(g.ID)}, err
	}
	return actionResult{To: "/groups"}, v.UpdateGroup(v, id, r)
}

func askDeleteGroup(v *visit) (any, error) {
	f, err := oneGroup(v)
	if err != nil {
		return nil, err
	}
	v.title = "Delete group " + f.Name
	if page, err := v.InstancePage(v,
		client.PageOptions{Filter: "state:scheduling group:" + f.ID, Limit: 1}); err == nil {
		f.Waiting = page.Total
	}
	return f, nil
}

func doDeleteGroup(v *visit) (actionResult, error) {
	return actionResult{To: "/groups"}, v.DeleteGroup(v, v.r.PathValue("id"))
}
