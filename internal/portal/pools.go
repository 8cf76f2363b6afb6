package portal

import (
	"cmp"
	"net/url"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/format"
)

const pathPools = "/api/v1/pool"

func (p *portal) poolPages() []page {
	const topics = Pools | Instances | Groups
	return []page{
		{pattern: "/pools", templateName: "pools", title: "Warm pools", topics: topics, buildView: listPools},
		{pattern: "/pools/{id}", templateName: "pool", title: "Warm pool", topics: topics, buildView: showPool},
	}
}

// poolRow is a pool with the names of what it is for.
type poolRow struct {
	api.Pool
	Group      string // name of its group, the end of its ID where the name is not known; "": it has none
	LinksGroup bool   // its group is in the list of groups
}

// Template returns the name of the template; the end of its ID where the visitor does not see it.
func (r poolRow) Template() string { return cmp.Or(r.TemplateName, format.ShortID(r.TemplateID)) }

// WithoutProblem returns the row for a place that shows the problem elsewhere.
func (r poolRow) WithoutProblem() poolRow {
	r.Problem = ""
	return r
}

// Claims returns the number of starts that claimed a standby, ready or not.
func (r poolRow) Claims() int { return int(r.Stats.Hits + r.Stats.EarlyHits) }

// Missed returns the number of starts that fitted and found no standby.
func (r poolRow) Missed() int { return int(r.Stats.Misses) }

// Saved returns the time that claims have saved.
func (r poolRow) Saved() string { return format.Seconds(r.Stats.SavedSeconds) }

// Windows returns the schedule, a line for each window.
func (r poolRow) Windows() (lines []string) {
	for _, w := range r.Schedule {
		lines = append(lines, farm.PoolWindow(w).String())
	}
	return lines
}

// AgeLimit returns the age at which standbys are replaced; "" where it is unlimited.
func (r poolRow) AgeLimit() string { return ageText(r.MaxAge) }

// poolList is the page of the pools.
type poolList struct {
	Filter, FilterError string
	Total               int
	Rows                []poolRow
	Pager               pager
	GroupsHiddenReason  string // their names are not shown
	CurlCommand         string
}

func listPools(v *visit) (any, error) {
	a := v.tableQuery("")
	a.sort = ""
	list := poolList{
		Filter: a.filter, CurlCommand: curlCommand(v, "GET", format.Path(pathPools, "filter", a.filter), ""),
	}
	all, err := v.Pools(v, client.ListOptions{Filter: a.filter}) // by name
	if list.FilterError = filterError(err, a.filter); list.FilterError != "" {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	list.Total = len(all)
	shown := pageRows(&a, all)
	list.Rows, list.GroupsHiddenReason = v.poolRows(shown...)
	list.Pager = a.pager(len(list.Rows), list.Total)
	return list, nil
}

// poolRows adds the names of groups to pools. hidden is why they are not known.
func (v *visit) poolRows(pools ...api.Pool) (rows []poolRow, hidden string) {
	names := map[string]string{}
	for _, p := range pools {
		if p.GroupID == nil {
			continue
		}
		groups, err := v.Groups(v, client.ListOptions{})
		hidden = notShownReason(err)
		for _, g := range groups {
			names[g.ID] = g.Name
		}
		break
	}
	for _, p := range pools {
		row := poolRow{Pool: p}
		if p.GroupID != nil {
			name, known := names[*p.GroupID]
			row.Group, row.LinksGroup = cmp.Or(name, format.ShortID(*p.GroupID)), known
		}
		rows = append(rows, row)
	}
	return rows, hidden
}

// poolCount returns how many pools match a filter, and why that is not shown.
func (v *visit) poolCount(filter string) (n int, hidden string) {
	list, err := v.Pools(v, client.ListOptions{Filter: filter})
	return len(list), notShownReason(err)
}

// poolsByGroup returns how many pools each node group has, and why that is not shown.
func (v *visit) poolsByGroup() (counts map[string]int, hidden string) {
	list, err := v.Pools(v, client.ListOptions{})
	counts = map[string]int{}
	for _, p := range list {
		if p.GroupID != nil {
			counts[*p.GroupID]++
		}
	}
	return counts, notShownReason(err)
}

// poolView is the page of one pool.
type poolView struct {
	poolRow
	GroupsHiddenReason string
	Standbys           []standbyRow
	CurlCommand        string
}

// standbyRow is a standby of a pool.
type standbyRow struct {
	api.Standby
	Name string // of its node; "": none, or one that the visitor does not see
}

// Since returns the time from which the standby is ready, or was created.
func (r standbyRow) Since() time.Time {
	if r.Started.IsZero() {
		return r.Created
	}
	return r.Started
}

func showPool(v *visit) (any, error) {
	p, err := v.Pool(v, v.request.PathValue("id"))
	if err != nil {
		return nil, err
	}
	v.title = "Pool " + p.Name
	rows, hidden := v.poolRows(p)
	out := poolView{
		poolRow: rows[0], GroupsHiddenReason: hidden,
		CurlCommand: curlCommand(v, "GET", pathPools+"?id="+url.QueryEscape(p.ID), ""),
	}
	for _, s := range p.Standbys {
		row := standbyRow{Standby: s}
		if s.NodeID != "" {
			row.Name = cmp.Or(s.NodeName, format.ShortID(s.NodeID))
		}
		out.Standbys = append(out.Standbys, row)
	}
	return out, nil
}
