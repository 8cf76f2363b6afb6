package buildyard

import (
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/controller/placement"
	"github.com/buildyard/buildyard/internal/controller/templates"
	"github.com/buildyard/buildyard/internal/farm"
)

// placementPolicy restricts placements to the nodes on which permission groups may start instances.
type placementPolicy struct{ authorizer *auth.Authorizer }

var _ placement.Policy = placementPolicy{}

// placementPolicyOf returns the placement policy of the callers of a service; nil without authentication.
func placementPolicyOf(a *access) placement.Policy {
	if a == nil {
		return nil
	}
	return placementPolicy{a.authorizer}
}

// Starters implements placement.Policy.
func (p placementPolicy) Starters() map[string][]string {
	rules := p.authorizer.Rules()
	if !rules.Managed() {
		return nil
	}
	return rules.Holders(farm.ResourceNode, "create_instance")
}

// Watch implements placement.Policy.
func (p placementPolicy) Watch(changed func()) { p.authorizer.Watch(changed) }

// rightsQueryOf returns the query of the rights of a service's callers at a registry; nil without
// authentication.
func rightsQueryOf(a *access, shelf registryAPI) templates.RightsQuery {
	if a == nil {
		return nil
	}
	return shelf.CallerRights
}
