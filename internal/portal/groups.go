package portal

import (
	"net/url"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

func (p *portal) groupPages() []page {
	return []page{{path: "/groups", name: "groups", title: "Groups", topic: Groups | Nodes, load: listGroups}}
}

func (p *portal) groupDeeds() []deed {
	return []deed{
		{path: "/groups/new", name: "groupedit", title: "Create group", ask: askGroup, do: doGroup},
		{path: "/groups/{id}/edit", name: "groupedit", title: "Edit group", ask: askGroup, do: doGroup},
		{path: "/groups/{id}/delete", name: "groupdelete", title: "Delete group", ask: askDeleteGroup, do: doDeleteGroup},
	}
}

// groupRow is a group of nodes with the nodes in it.
type groupRow struct {
	api.Group
	Fallback string // name of the group where its instances may start too
	Nodes    []api.Node
}

// groupList is the page of the groups.
type groupList struct {
	Rows     []groupRow
	NodesWhy string // they are not shown
	Curl     string
}

func listGroups(v *visit) (any, error) {
	all, err := v.Groups(v, client.ListOptions{})
	if err != nil {
		return nil, err
	}
	list := groupList{Curl: curl(v, "GET", "/api/v1/group", "")}
	nodes, err := v.Nodes(v, client.ListOptions{})
	list.NodesWhy = refusal(err)
	slices.SortFunc(all, func(a, b api.Group) int { return strings.Compare(a.Name, b.Name) })
	for _, g := range all {
		row := groupRow{Group: g}
		for _, n := range nodes {
			if slices.ContainsFunc(n.Groups, func(of api.Group) bool { return of.ID == g.ID }) {
				row.Nodes = append(row.Nodes, n)
			}
		}
		for _, other := range all {
			if g.FallbackGroupID != nil && other.ID == *g.FallbackGroupID {
				row.Fallback = other.Name
			}
		}
		list.Rows = append(list.Rows, row)
	}
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
		return groupForm{}, &client.Error{Code: client.ErrNotFound, Message: "There is no such group."}
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

func doGroup(v *visit) (outcome, error) {
	about := strings.TrimSpace(v.q.Get("description"))
	r := client.GroupRequest{Name: strings.TrimSpace(v.q.Get("name")), Description: &about, FallbackID: v.q.Get("fallback_group_id")}
	id := v.r.PathValue("id")
	if id == "" {
		g, err := v.CreateGroup(v, r)
		return outcome{To: "/groups#g-" + url.PathEscape(g.ID)}, err
	}
	if r.FallbackID == "" {
		r.FallbackID = client.NoFallback
	}
	return outcome{To: "/groups"}, v.UpdateGroup(v, id, r)
}

func askDeleteGroup(v *visit) (any, error) {
	f, err := oneGroup(v)
	if err != nil {
		return nil, err
	}
	v.title = "Delete group " + f.Name
	if page, err := v.InstancePage(v, client.PageOptions{Filter: "state:scheduling group:" + f.ID, Limit: 1}); err == nil {
		f.Waiting = page.Total
	}
	return f, nil
}

func doDeleteGroup(v *visit) (outcome, error) {
	return outcome{To: "/groups"}, v.DeleteGroup(v, v.r.PathValue("id"))
}
