package client

import (
	"context"
	"net/url"

	"github.com/buildyard/buildyard/api"
)

// Series returns the load of the cloud over a time range: api.RangeHour, RangeQuarter, RangeDay or RangeWeek.
func (c *Controller) Series(ctx context.Context, over string) (api.Series, error) {
	return fetch[api.Series](ctx, c.service, get("/api/v1/stats/series", url.Values{"range": {over}}))
}
