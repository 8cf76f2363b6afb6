package controller

import (
	"context"

	"github.com/buildyard/buildyard/api"
)

// tagOrNumber selects a version of a template; the latest with neither.
type tagOrNumber struct {
	tag    string
	number *int
}

// version returns a version in the registry to a caller with the required rights.
func (c *Controller) version(
	ctx context.Context, n requiredRight, id string, which tagOrNumber,
) (api.TemplateDetail, api.TemplateVersion, error) {
	detail, err := c.allowed(ctx, id, n)
	if err != nil {
		return detail, api.TemplateVersion{}, err
	}
	v, err := pickVersion(detail, which.tag, which.number)
	return detail, v, err
}
