package buildyard

import (
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/farm"
)

// permits lets the controller place instances as permission groups may start them.
type permits struct{ judge *auth.Judge }

var _ controller.Permits = permits{}

// Starters implements controller.Permits.
func (p permits) Starters() map[string][]string {
	rules := p.judge.Rules()
	if !rules.Managed() {
		return nil
	}
	return rules.Holders(farm.ResourceNode, "create_instance")
}

// Watch implements controller.Permits.
func (p permits) Watch(changed func()) { p.judge.Watch(changed) }
