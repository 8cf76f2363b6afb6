package client

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/buildyard/buildyard/api"
)

const (
	pathDistribute = pathTemplate + "/distribute"
	pathRemove     = pathTemplate + "/remove"
)

// DistributeRequest selects a version and the nodes that are to cache it.
type DistributeRequest struct {
	TemplateID string   `json:"template_id"`
	Tag        string   `json:"tag,omitempty"`       // "": the latest
	Version    *int     `json:"version,omitempty"`   // instead of Tag
	NodeIDs    []string `json:"node_ids,omitempty"`  // none: all
	GroupID    string   `json:"group_id,omitempty"`  // only nodes of this group
	GroupIDs   []string `json:"group_ids,omitempty"` // only nodes of one of these groups, and of GroupID
	Filter     string   `json:"filter,omitempty"`    // only nodes that match, as in a list of nodes
	Group      string   `json:"group,omitempty"`     // permission group

	IdempotencyKey string `json:"-"` // see NewKey
}

// Distribute requests that nodes cache a version, and returns the ID of the request.
func (c *Controller) Distribute(ctx context.Context, r DistributeRequest) (string, error) {
	answer, err := fetch[api.DistributeAnswer](ctx, c.service,
		call{method: http.MethodPost, path: pathDistribute, body: r, key: r.IdempotencyKey})
	return answer.RequestID, err
}

// PreviewDistribution returns what Distribute would do now, without doing it.
func (c *Controller) PreviewDistribution(ctx context.Context, r DistributeRequest) (api.DistributePreview, error) {
	body := struct {
		DistributeRequest
		DryRun bool `json:"dry_run"`
	}{r, true}
	answer, err := fetch[api.DistributeAnswer](ctx, c.service,
		call{method: http.MethodPost, path: pathDistribute, body: body, again: true})
	switch {
	case err != nil:
		return api.DistributePreview{}, err
	case answer.Preview == nil: // an older controller
		return api.DistributePreview{}, fmt.Errorf("the controller knows no dry run: it has begun the distribution %s",
			answer.RequestID)
	}
	return *answer.Preview, nil
}

// Distributions returns the distribution requests, with the status of each node.
func (c *Controller) Distributions(ctx context.Context, o ListOptions) ([]api.Distribution, error) {
	return fetch[[]api.Distribution](ctx, c.service, get(pathDistribute, o.query()))
}

// Distribution returns one distribution request.
func (c *Controller) Distribution(ctx context.Context, id string) (api.Distribution, error) {
	return one[api.Distribution](ctx, c.service, pathDistribute, id)
}

// CancelDistribution ends a distribution. Nodes that have the version keep it.
func (c *Controller) CancelDistribution(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: pathDistribute, query: byID(id), again: true}, nil)
}

// RemoveFromNodes asks nodes, or with none all of them, to remove the unused versions of a template.
func (c *Controller) RemoveFromNodes(ctx context.Context, template string, nodes ...string) (api.RemoveAnswer, error) {
	body := map[string][]string{}
	if len(nodes) > 0 {
		body["node_ids"] = nodes
	}
	return fetch[api.RemoveAnswer](ctx, c.service,
		call{method: http.MethodDelete, path: pathRemove, query: byID(template), body: body})
}

// Removals returns the removal requests.
func (c *Controller) Removals(ctx context.Context, o ListOptions) ([]api.Removal, error) {
	return fetch[[]api.Removal](ctx, c.service, get(pathRemove, o.query()))
}

// Removal returns one removal request.
func (c *Controller) Removal(ctx context.Context, id string) (api.Removal, error) {
	return one[api.Removal](ctx, c.service, pathRemove, id)
}

// WaitDistributed waits until every node of a distribution has cached the version or failed. A failure is a
// *WaitError. progress, unless nil, is called after every poll.
func (c *Controller) WaitDistributed(
	ctx context.Context, request string, progress func(api.Distribution),
) (api.Distribution, error) {
	look := func(ctx context.Context) (api.Distribution, error) { return c.Distribution(ctx, request) }
	return until(ctx, look, func(d api.Distribution) (bool, error) {
		if progress != nil {
			progress(d)
		}
		failed, first := 0, ""
		for _, node := range slices.Sorted(maps.Keys(d.Status)) {
			s := d.Status[node]
			switch {
			case s.Status:
			case s.Error == "":
				return false, nil
			default:
				if failed++; failed == 1 {
					first = "node " + node + ": " + s.Error
				}
			}
		}
		if failed > 0 {
			return false, &WaitError{"distribution " +
				request, fmt.Sprintf("done for %d of %d nodes", len(d.Status)-failed, len(d.Status)), first}
		}
		return true, nil
	})
}

// WaitRemoved waits until every node has reported the result of a removal.
func (c *Controller) WaitRemoved(ctx context.Context, request string) (api.Removal, error) {
	look := func(ctx context.Context) (api.Removal, error) { return c.Removal(ctx, request) }
	return until(ctx, look, func(r api.Removal) (bool, error) {
		for _, s := range r.Status {
			if !s.Status && s.Error == "" {
				return false, nil
			}
		}
		return true, nil
	})
}
