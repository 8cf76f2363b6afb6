package client

import (
	"context"

	"github.com/buildyard/buildyard/api"
)

// Stats returns how busy the cloud is.
func (c *Controller) Stats(ctx context.Context) (api.ControllerStats, error) {
	return fetch[api.ControllerStats](ctx, c.service, get("/api/v1/stats", nil))
}
