//go:build failpoint

package buildyard

import (
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/tools/failpoint/inject"
)

// connectFaultPlan connects the registry to the fault plan; only the fault suite builds this file.
func connectFaultPlan(o *registry.Options) error {
	p, err := inject.FromEnvironment()
	o.Hooks.Step, o.ReserveBytes, o.CompactPullsAfter, o.SquashInterval = p.Hook(), p.Reserve, p.FoldPulls,
		p.Consolidate
	return err
}
