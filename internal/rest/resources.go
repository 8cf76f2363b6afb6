package rest

import (
	"context"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// listRight is the right to see a resource, of any type.
const listRight farm.Permission = "list"

// RequireVisibleRight refuses a caller without a right on a resource. For callers that may not list it, the resource is
// not found.
func (c Caller) RequireVisibleRight(kind farm.ResourceType, id string, right farm.Permission) error {
	return c.hideUnlessListed(c.HasRight(kind, id, right), kind, id, c.rightRefusal(kind, id, right))
}

// RequireGroupRight is May for a request that is made for a permission group; "" is the caller alone.
func (c Caller) RequireGroupRight(group string, kind farm.ResourceType, id string, right farm.Permission) error {
	if group == "" {
		return c.RequireVisibleRight(kind, id, right)
	}
	return c.hideUnlessListed(c.GroupHasRight(group, kind, id, right), kind, id,
		farm.Errorf(farm.CodeForbidden, "The permission group %s needs the permission %s on the %s %s", group, right,
			kind, id))
}

func (c Caller) hideUnlessListed(has bool, kind farm.ResourceType, id string, refusal error) error {
	switch {
	case has:
		return nil
	case c.HasRight(kind, id, listRight):
		return refusal
	default:
		return farm.NotFound()
	}
}

// Unlimited reports whether the caller may do everything: without a guard, or as the root user.
func (c Caller) Unlimited() bool { return c.rules == nil || c.Root && c.ActsFor == nil }

// CanSee reports whether the caller may see a resource.
func (c Caller) CanSee(kind farm.ResourceType, id string) bool {
	return c.HasRight(kind, id, listRight)
}

// RightsOn returns the caller's permissions in a service, and its rights on some of its resources. Resources
// without rights are left out.
func (c Caller) RightsOn(s farm.Service, kind farm.ResourceType, ids []string) *api.CallerRights {
	out := &api.CallerRights{
		Permissions: []string{}, Templates: map[string][]string{},
		Enforced: c.rules != nil && c.rules.Enforced(), Managed: c.ResourcesManaged(),
	}
	for _, p := range farm.AllPermissions(s) {
		if c.RequirePermission(p.Name) == nil {
			out.Permissions = append(out.Permissions, string(p.Name))
		}
	}
	if !out.Managed {
		return out
	}
	rights := farm.ResourcePermissions(kind)
	for _, id := range ids {
		for _, right := range rights {
			if c.HasRight(kind, id, right.Name) {
				out.Templates[id] = append(out.Templates[id], string(right.Name))
			}
		}
	}
	return out
}

// WithRules returns the caller under the rules of another service of this process. It returns an anonymous caller,
// who may do everything, if either service has no rules.
func (c Caller) WithRules(rules *auth.Rules) Caller {
	if c.rules == nil || rules == nil {
		return Caller{}
	}
	c.rules = rules
	return c
}

// WithoutCaller returns a context for the program's own actions: CallerOf returns an anonymous caller.
func WithoutCaller(ctx context.Context) context.Context {
	return context.WithValue(ctx, auditKey{}, (*requestAudit)(nil))
}
