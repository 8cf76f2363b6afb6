package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// revalidateInterval is the interval at which the caller of a long request is revalidated.
const revalidateInterval = time.Second

// revalidatedRequest returns a request whose context ends when its caller loses access: the key was deleted, the
// certificate revoked, or the permission removed. leave ends the checks.
func (g *Guard) revalidatedRequest(r *http.Request, p *requestAudit) (within *http.Request, leave context.CancelFunc) {
	ctx, leave := context.WithCancel(r.Context())
	within = r.WithContext(ctx)
	caller, needs := p.Caller, farm.Permission(p.route.Permission)
	go func() {
		defer leave()
		ticks := time.NewTicker(revalidateInterval)
		defer ticks.Stop()
		for g.isStillAllowed(within, &caller, needs) {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
		}
	}()
	return within, leave
}

// isStillAllowed reports whether a caller may continue. A caller that cannot be revalidated now may.
func (g *Guard) isStillAllowed(r *http.Request, c *Caller, needs farm.Permission) bool {
	who, err := g.opts.Identifier.Revalidate(r, c.Identity)
	switch farm.CodeOf(err) {
	case "":
		c.Identity = who
	case farm.CodeUnavailable:
	default:
		return false
	}
	c.rules = g.opts.Authorizer.Rules()
	return c.RequirePermission(needs) == nil
}
