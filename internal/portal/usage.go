package portal

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/format"
)

func (p *portal) usagePages() []page {
	return []page{{pattern: "/usage", templateName: "usage", title: "Usage", buildView: showUsage}}
}

// usageView is the page of the usage by group, owner or template.
type usageView struct {
	By, Range    []chip
	Heading      string // of the first column
	Report       api.UsageReport
	HiddenReason string // which permission is missing for what usage is shown by; "": none
	Rows         []usageRow
	CurlCommand  string
}

// usageRow is the usage of a group, an owner or a template.
type usageRow struct {
	api.UsageRow
	Path  string // of its page; "": it has none
	Hours string
	Share string // of the largest row, for a meter
}

// usageKinds are what usage is shown by.
var usageKinds = []struct{ by, name, path string }{
	{api.ByGroup, "Group", groupsOfID}, {api.ByOwner, "Owner", ""}, {api.ByTemplate, "Template", "/templates/"},
}

func showUsage(v *visit) (any, error) {
	kind := usageKinds[0]
	for _, k := range usageKinds {
		if k.by == v.query.Get("by") {
			kind = k
		}
	}
	over := v.query.Get("range")
	ranges := []string{api.RangeDay, api.RangeWeek}
	if !slices.Contains(ranges, over) {
		over = api.RangeDay
	}
	report, err := v.UsageReport(v, kind.by, over)
	if err != nil && (client.CodeOf(err) != client.ErrForbidden || v.canDo().DeniedReason("see usage", "") != "") {
		return nil, err
	}
	out := usageView{
		Heading: kind.name, Report: report, HiddenReason: notShownReason(err),
		CurlCommand: curlCommand(v, "GET", format.Path("/api/v1/stats/usage", "by", kind.by, "range", over), ""),
	}
	for _, k := range usageKinds {
		out.By = append(out.By, chip{
			Name: "By " + k.by, Selected: k.by == kind.by, Path: format.Path("/usage", "by", k.by, "range", over),
		})
	}
	for _, name := range ranges {
		out.Range = append(out.Range, chip{
			Name: name[:len(name)-1] + " " + name[len(name)-1:], Selected: name == over,
			Path: format.Path("/usage", "by", kind.by, "range", name),
		})
	}
	most := 0.0
	for _, r := range report.Rows {
		most = max(most, r.InstanceHours)
	}
	for _, r := range report.Rows {
		row := usageRow{UsageRow: r, Hours: strconv.FormatFloat(r.InstanceHours, 'f', 1, 64), Share: "0"}
		if most > 0 {
			row.Share = strconv.FormatFloat(r.InstanceHours/most, 'f', 3, 64)
		}
		if kind.path != "" && r.Key != "" && !r.Other {
			row.Path = kind.path + url.PathEscape(r.Key)
		}
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}
