package templates

import (
	"context"
	"sync"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/transfer"
)

// configCache caches the configuration of versions by content id, whose content never changes.
type configCache struct {
	registry Registry

	mu   sync.Mutex
	byID map[string]api.TemplateConfig
}

// maxConfigs bounds the cache; when it is full it is emptied, since filling it again costs one call
// per version.
const maxConfigs = 4096

// get returns the configuration of a version of a template.
func (c *configCache) get(ctx context.Context, id string, v api.TemplateVersion) (api.TemplateConfig, error) {
	c.mu.Lock()
	config, ok := c.byID[v.ContentID]
	c.mu.Unlock()
	if ok {
		return config, nil
	}
	// The content id is necessary too: after a revert and a new push the number means other bytes.
	config, err := c.registry.VersionConfig(ctx, transfer.VersionRef{ID: id, Number: &v.Number, ContentID: v.ContentID})
	if err != nil || v.ContentID == "" {
		return config, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil || len(c.byID) >= maxConfigs {
		c.byID = map[string]api.TemplateConfig{}
	}
	c.byID[v.ContentID] = config
	return config, nil
}
