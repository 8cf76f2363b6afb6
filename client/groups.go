package client

import (
	"context"
	"net/http"

	"github.com/buildyard/buildyard/api"
)

const (
	pathGroup     = "/api/v1/group"
	pathNodeGroup = "/api/v1/node/group"
)

// NoFallback is the FallbackID that removes a group's fallback.
const NoFallback = "none"

// GroupRequest describes a node group. In an update nil and "" leave a field unchanged; a Description that
// points to "" is removed.
type GroupRequest struct {
	Name        string  `json:"name,omitempty"`
	Description *string `json:"description,omitempty"`
	FallbackID  string  `json:"fallback_group_id,omitempty"` // a group's id, or NoFallback

	IdempotencyKey string `json:"-"` // of a creation; see NewKey
}

// CreateGroup makes a node group.
func (c *Controller) CreateGroup(ctx context.Context, g GroupRequest) (api.Group, error) {
	return fetch[api.Group](ctx, c.service,
		call{method: http.MethodPost, path: pathGroup, body: g, key: g.IdempotencyKey})
}

// Groups returns the node groups.
func (c *Controller) Groups(ctx context.Context, o ListOptions) ([]api.Group, error) {
	return fetch[[]api.Group](ctx, c.service, get(pathGroup, o.query()))
}

// UpdateGroup changes a node group.
func (c *Controller) UpdateGroup(ctx context.Context, id string, g GroupRequest) error {
	if g.Description != nil && *g.Description == "" { // which the API treats as not given
		blank := " "
		g.Description = &blank
	}
	return c.do(ctx, call{method: http.MethodPut, path: pathGroup, query: byID(id), body: g, again: true}, nil)
}

// DeleteGroup removes a node group. Its pending instances end in Error.
func (c *Controller) DeleteGroup(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: pathGroup, query: byID(id), again: true}, nil)
}

// membership is the body of both calls on a node's groups.
type membership struct {
	GroupIDs []string `json:"group_ids"`
	NodeIDs  []string `json:"node_ids"`
}

// AddNodeToGroups puts a node into groups; it may be in them already.
func (c *Controller) AddNodeToGroups(ctx context.Context, node string, groups ...string) error {
	return c.do(ctx,
		call{method: http.MethodPost, path: pathNodeGroup, body: membership{groups, []string{node}}, again: true}, nil)
}

// RemoveNodeFromGroups removes a node from groups; it need not be in them.
func (c *Controller) RemoveNodeFromGroups(ctx context.Context, node string, groups ...string) error {
	return c.do(ctx,
		call{method: http.MethodDelete, path: pathNodeGroup, body: membership{groups, []string{node}}, again: true},
		nil)
}
