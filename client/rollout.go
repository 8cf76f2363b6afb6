package client

import (
	"context"
	"net/http"

	"github.com/buildyard/buildyard/api"
)

// Rollout returns the last rollout of agent packages; ErrNotFound if there was none.
func (c *Controller) Rollout(ctx context.Context) (api.AgentRollout, error) {
	return fetch[api.AgentRollout](ctx, c.service, get(api.PathRollout, nil))
}

// StartRollout starts a rollout of the agent packages of the controller to all nodes.
func (c *Controller) StartRollout(ctx context.Context, r api.StartRollout) (api.AgentRollout, error) {
	return fetch[api.AgentRollout](ctx, c.service, call{method: http.MethodPost, path: api.PathRollout, body: r})
}

// ChangeRollout pauses, resumes or aborts the rollout.
func (c *Controller) ChangeRollout(ctx context.Context, r api.ChangeRollout) (api.AgentRollout, error) {
	return fetch[api.AgentRollout](ctx, c.service,
		call{method: http.MethodPut, path: api.PathRollout, body: r, again: true})
}
