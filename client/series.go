package client

import (
	"context"
	"net/url"

	"github.com/buildyard/buildyard/api"
)

// Series returns how busy the cloud was over a while: api.RangeHour, RangeQuarter, RangeDay or
// RangeWeek.
func (c *Controller) Series(ctx context.Context, over string) (api.Series, error) {
	return fetch[api.Series](ctx, c.service, get("/api/v1/stats/series", url.Values{"range": {over}}))
}
