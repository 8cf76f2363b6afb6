package portal

import (
	"net/url"
	"time"

	"github.com/buildyard/buildyard/api"
)

func (p *portal) templatePages() []page {
	return []page{
		{path: "/templates", name: "templates", title: "Templates", topic: Nodes | Templates, load: listTemplates},
		{path: "/templates/{id}", name: "template", title: "Template", topic: Nodes | Templates | CacheJobs |
			Instances, load: oneTemplate},
		{path: "/templates/{id}/scan", name: "templatescan", title: "Scan", load: templateScan},
		{
			path: "/templates/{id}/distributions/{request}", name: "distribution", title: "Distribution",
			topic: CacheJobs,
			load:  oneDistribution,
		},
	}
}

func (p *portal) templateActions() []action {
	return []action{
		{
			path: "/templates/{id}/distribute", name: "distribute", title: "Distribute template", ask: askDistribute,
			do: doDistribute,
		},
		{
			path: "/templates/{id}/distributions/{request}/cancel", name: "distributecancel",
			title: "Cancel distribution",
			ask:   askCancelDistribution, do: doCancelDistribution,
		},
		{path: "/templates/{id}/revert", name: "revert", title: "Revert template", ask: askRevert, do: doRevert},
		{
			path: "/templates/{id}/delete", name: "templatedelete", title: "Delete template", ask: askDeleteTemplate,
			do: doDeleteTemplate,
		},
		{
			path: "/templates/{id}/remove", name: "templateuncache", title: "Remove from node caches",
			ask: askRemoveTemplate, do: doRemoveTemplate,
		},
	}
}

// templateRow is a template in the list.
type templateRow struct {
	ID, Name, Tag, Arch string
	Versions, Nodes     int
	Size                int64
	Pushed, Pulled      time.Time
}

// templateList is the page of the templates.
type templateList struct {
	Filter, Sort, Wrong string
	Curl, Push          string
	Total               int
	Columns             []column
	Rows                []templateRow
	Pager               pager
	Guarded             bool
	NodesNot            string // why it is not shown how many nodes hold them
}

var templateColumns = []column{
	{Name: "Name", Field: "name"},
	{Name: "Latest tag", Field: "tag"},
	{Name: "Tags", Field: "versions", Num: true},
	{Name: "Size", Field: "size", Num: true},
	{Name: "Nodes", Field: "nodes", Num: true},
	{Name: "For", Field: "arch"},
	{Name: "Pushed", Field: "pushed", Num: true},
	{Name: "Pulled", Field: "pulled", Num: true},
}

func listTemplates(v *visit) (any, error) {
	a := v.asked("name")
	list := templateList{Filter: a.filter, Sort: v.q.Get("sort"), Guarded: v.guarded}
	list.Curl = curl(v, "GET", "/api/v1/registry/vm?"+url.Values{"filter": {a.filter}}.Encode(), "")
	page, err := v.TemplatePage(v, a.options())
	if err == nil && a.beyond(len(page.Templates), page.Total) {
		page, err = v.TemplatePage(v, a.options())
	}
	if list.Wrong = wrongFilter(err, a.filter); list.Wrong != "" {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	list.Total, list.Columns, list.Pager = page.Total, a.columns(templateColumns),
		a.pager(len(page.Templates), page.Total)
	for _, t := range page.Templates {
		list.Rows = append(list.Rows, templateRow{
			ID: t.ID, Name: t.Name, Tag: t.LatestTag, Arch: t.Arch, Versions: t.VersionCount, Nodes: t.Nodes,
			Size:   t.Size,
			Pushed: epoch(t.LastPush), Pulled: epoch(t.LastPull),
		})
	}
	list.NodesNot = v.can().Not("see nodes", "")
	if page.Total == 0 && a.filter == "" {
		list.Push = pushCommand(v)
	}
	return list, nil
}

// pushCommand is how a template gets into the registry of this cloud.
func pushCommand(v *visit) string {
	address := "http://registry.example:8089"
	if status, err := v.Status(v); err == nil && status.RegistryAddress != "" {
		address = status.RegistryAddress
	}
	line := "buildnode registry -r " + shellQuoted(address)
	if v.guarded {
		line += " --token-file root.token"
	}
	return line + " push NAME-OF-VM --tag v1"
}

// epoch returns a time of the registry; zero for never.
func epoch(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// scanSummary is a summary of a scanner's findings.
type scanSummary struct {
	Scanner           string
	At, Database      time.Time
	Partial           bool
	Counts            []count
	Packages, Matches int
}

// count is the number of items with a name.
type count struct {
	Name string
	N    int
	Tone string // its color, in addition to its name
}

func shortScan(s *api.ScanSummary) *scanSummary {
	if s == nil {
		return nil
	}
	c := s.Counts
	out := &scanSummary{Scanner: s.Scanner + " " +
		s.Version, At: s.Scanned, Database: s.Database, Partial: s.Partial, Packages: c.Packages}
	for _, k := range []count{
		{"critical", c.Critical, "bad"},
		{"high", c.High, "bad"},
		{"medium", c.Medium, "warn"},
		{"low", c.Low, "dim"},
		{"without a score", c.Unknown, "dim"},
	} {
		if out.Matches += k.N; k.N > 0 {
			out.Counts = append(out.Counts, k)
		}
	}
	return out
}
