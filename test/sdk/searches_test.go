package sdk_test

import "github.com/buildyard/buildyard/api"

// searches asks for a search, a completion, short series and the usage.
func (x *tour) searches() {
	ctx := x.Context()
	if found, err := x.c.Search(ctx, "good-0001", 1); err != nil || len(found.Matches) == 0 {
		x.Errorf("search: %+v %v", found, err)
	}
	if c, err := x.c.CompleteFilter(ctx, "nodes", "state:act", 0); err != nil || len(c.Values) == 0 {
		x.Errorf("completion: %+v %v", c, err)
	}
	lists, err := x.c.GroupSparklines(ctx, api.RangeHour)
	x.ok(err)
	report, err := x.c.UsageReport(ctx, api.ByTemplate, api.RangeWeek)
	x.ok(err)
	if lists.By != api.ByGroup || lists.Series == nil || report.By != api.ByTemplate || report.Rows == nil {
		x.Errorf("%+v %+v", lists, report)
	}
}
