package portal

import (
	"net/url"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/portal/snippet"
)

func (p *portal) templatePages() []page {
	return []page{
		{pattern: "/templates", templateName: "templates", title: "Templates", topics: Nodes |
			Templates, buildView: listTemplates},
		{pattern: "/templates/{id}", templateName: "template", title: "Template", topics: Nodes | Templates |
			CacheJobs |
			Instances, buildView: showTemplate},
		{pattern: "/templates/{id}/scan", templateName: "templatescan", title: "Scan", buildView: showTemplateScan},
		{
			pattern: "/templates/{id}/distributions/{request}", templateName: "distribution", title: "Distribution",
			topics:    CacheJobs,
			buildView: showDistribution,
		},
	}
}

func (p *portal) templateActions() []action {
	return []action{
		{
			pattern: "/templates/{id}/distribute", templateName: "distribute", title: "Distribute template",
			buildForm: askDistribute,
			perform:   doDistribute,
		},
		{
			pattern: "/templates/{id}/distributions/{request}/cancel", templateName: "distributecancel",
			title:     "Cancel distribution",
			buildForm: askCancelDistribution, perform: doCancelDistribution,
		},
		{
			pattern: "/templates/{id}/revert", templateName: "revert", title: "Revert template", buildForm: askRevert,
			perform: doRevert,
		},
		{
			pattern: "/templates/{id}/delete", templateName: "templatedelete", title: "Delete template",
			buildForm: askDeleteTemplate,
			perform:   doDeleteTemplate,
		},
		{
			pattern: "/templates/{id}/remove", templateName: "templateuncache", title: "Remove from node caches",
			buildForm: askRemoveTemplate, perform: doRemoveTemplate,
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
	Filter, Sort, FilterError string
	CurlCommand, Push         string
	Total                     int
	Columns                   []column
	ColumnMenu                columnMenu
	Has                       map[string]bool // columns by their IDs
	Rows                      []templateRow
	Pager                     pager
	Guarded                   bool
	NodesHiddenReason         string // why it is not shown how many nodes hold them
}

var templateColumns = []column{
	{Name: "Name", Field: "name"},
	{ID: "tag", Name: "Latest tag", Field: "tag"},
	{ID: "tags", Name: "Tags", Field: "versions", Numeric: true},
	{ID: "size", Name: "Size", Field: "size", Numeric: true},
	{ID: "nodes", Name: "Nodes", Field: "nodes", Numeric: true},
	{ID: "arch", Name: "Architecture", Field: "arch"},
	{ID: "id", Name: "ID", IsExtra: true},
	{ID: "pushed", Name: "Pushed", Field: "pushed", Numeric: true},
	{ID: "pulled", Name: "Pulled", Field: "pulled", Numeric: true},
}

func listTemplates(v *visit) (any, error) {
	a := v.tableQuery("name")
	list := templateList{Filter: a.filter, Sort: v.query.Get("sort"), Guarded: v.loginRequired}
	list.CurlCommand = curlCommand(v, "GET", "/api/v1/registry/vm?"+url.Values{"filter": {a.filter}}.Encode(), "")
	page, err := v.TemplatePage(v, a.pageOptions())
	if err == nil && a.clampPage(len(page.Templates), page.Total) {
		page, err = v.TemplatePage(v, a.pageOptions())
	}
	if list.FilterError = filterError(err, a.filter); list.FilterError != "" {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	list.Total, list.Pager = page.Total, a.pager(len(page.Templates), page.Total)
	list.Columns, list.Has, list.ColumnMenu = v.chooseColumns(a.columns(templateColumns))
	for _, t := range page.Templates {
		list.Rows = append(list.Rows, templateRow{
			ID: t.ID, Name: t.Name, Tag: t.LatestTag, Arch: t.Arch, Versions: t.VersionCount, Nodes: t.Nodes,
			Size:   t.Size,
			Pushed: epochTime(t.LastPush), Pulled: epochTime(t.LastPull),
		})
	}
	list.NodesHiddenReason = v.canDo().DeniedReason("see nodes", "")
	if page.Total == 0 && a.filter == "" {
		list.Push = pushCommand(v)
	}
	return list, nil
}

// exampleVM is the name of the VM in the commands that import and push it.
const exampleVM = "my-image"

// pushCommand is how a template gets into the registry of this cloud.
func pushCommand(v *visit) string {
	address := "http://registry.example:8089"
	if status, err := v.Status(v); err == nil && status.RegistryAddress != "" {
		address = status.RegistryAddress
	}
	line := "buildnode registry -r " + snippet.Quoted(address)
	if flags := v.caller().NodeFlags(); flags != "" {
		line += " " + flags
	}
	return line + " push " + exampleVM + " --tag v1"
}

// epochTime returns a time of the registry; zero for never.
func epochTime(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// scanSummary is a summary of a scanner's findings.
type scanSummary struct {
	Scanner             string
	ScannedAt, Database time.Time
	Partial             bool
	Counts              []count
	Packages, Matches   int
}

// count is the number of items with a name.
type count struct {
	Name  string
	Count int
	Tone  string // its color, in addition to its name
}

func newScanSummary(s *api.ScanSummary) *scanSummary {
	if s == nil {
		return nil
	}
	c := s.Counts
	out := &scanSummary{Scanner: s.Scanner + " " +
		s.Version, ScannedAt: s.Scanned, Database: s.Database, Partial: s.Partial, Packages: c.Packages}
	for _, k := range []count{
		{"critical", c.Critical, "bad"},
		{"high", c.High, "bad"},
		{"medium", c.Medium, "warn"},
		{"low", c.Low, "dim"},
		{"without a score", c.Unknown, "dim"},
	} {
		if out.Matches += k.Count; k.Count > 0 {
			out.Counts = append(out.Counts, k)
		}
	}
	return out
}
