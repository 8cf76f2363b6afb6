package transfer

import (
	"context"
	"net/url"

	"github.com/buildyard/buildyard/api"
)

// askMirror asks the mirror for a manifest, once. Whatever it refuses, the registry decides: the mirror may be one of
// another registry.
func (c *Client) askMirror(ctx context.Context, call apiCall) (m api.PullManifest, ok bool) {
	if c.mirror == nil || c.sources.isAvoided() {
		return m, false
	}
	call.toMirror, call.timeout, call.result = true, controlTimeout, &m
	if err := c.callOnce(ctx, call); err != nil {
		if ctx.Err() == nil {
			c.log.Warn("registry mirror not used; the registry is asked for a minute", "mirror", c.mirror.Redacted(),
				"error", err)
			c.sources.avoid()
		}
		return api.PullManifest{}, false
	}
	c.preferMirror(m)
	return m, true
}

// preferMirror puts the mirror before the other sources of each layer.
func (c *Client) preferMirror(m api.PullManifest) {
	if c.mirror == nil {
		return
	}
	for _, f := range m.Files {
		for i := range f.Layers {
			l := &f.Layers[i]
			for _, address := range l.URLs {
				if ref, err := url.Parse(address); err == nil && !ref.IsAbs() {
					l.URLs = append([]string{below(c.mirror, ref.Path, ref.Query())}, l.URLs...)
					break
				}
			}
		}
	}
}
