package client

import (
	"context"

	"github.com/buildyard/buildyard/api"
)

// Stats returns the load of the cloud.
func (c *Controller) Stats(ctx context.Context) (api.ControllerStats, error) {
	return fetch[api.ControllerStats](ctx, c.service, get("/api/v1/stats", nil))
}
