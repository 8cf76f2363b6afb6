package client

import (
	"context"
	"net/url"
	"strings"

	"github.com/buildyard/buildyard/api"
)

const seriesPath = "/api/v1/stats/series"

// Series returns the load of the cloud over a time range: api.RangeHour, RangeQuarter, RangeDay or RangeWeek.
func (c *Controller) Series(ctx context.Context, over string) (api.Series, error) {
	return fetch[api.Series](ctx, c.service, get(seriesPath, url.Values{"range": {over}}))
}

// NodeSeries returns the load of a node over a time range.
func (c *Controller) NodeSeries(ctx context.Context, over, node string) (api.Series, error) {
	return fetch[api.Series](ctx, c.service, get(seriesPath, url.Values{"range": {over}, "node_id": {node}}))
}

// GroupSeries returns the load of a group's nodes over a time range.
func (c *Controller) GroupSeries(ctx context.Context, over, group string) (api.Series, error) {
	return fetch[api.Series](ctx, c.service, get(seriesPath, url.Values{"range": {over}, "group_id": {group}}))
}

// NodeSparklines returns the load of up to api.MaxSparklines nodes over a time range, in Series.Series.
func (c *Controller) NodeSparklines(ctx context.Context, over string, nodes []string) (api.Series, error) {
	return fetch[api.Series](ctx, c.service, get(seriesPath, url.Values{
		"range": {over}, "by": {api.ByNode}, "node_id": {strings.Join(nodes, ",")},
	}))
}

// GroupSparklines returns the load of the groups over a time range, in Series.Series.
func (c *Controller) GroupSparklines(ctx context.Context, over string) (api.Series, error) {
	return fetch[api.Series](ctx, c.service, get(seriesPath, url.Values{"range": {over}, "by": {api.ByGroup}}))
}

// UsageReport returns the usage by api.ByGroup, ByOwner or ByTemplate over api.RangeDay or RangeWeek.
func (c *Controller) UsageReport(ctx context.Context, by, over string) (api.UsageReport, error) {
	return fetch[api.UsageReport](ctx, c.service, get("/api/v1/stats/usage", url.Values{"by": {by}, "range": {over}}))
}
