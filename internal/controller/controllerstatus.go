package controller

import (
	"context"

	"github.com/buildyard/buildyard/api"
)

// Status returns the state of the controller and its registry.
func (c *Controller) Status(ctx context.Context) api.ControllerStatus {
	s := api.ControllerStatus{
		Status: "Running", Version: c.opts.Version, RegistryAddress: c.opts.RegistryAddress,
		RegistryStatus: "Running", License: string(c.License.Tier()), LicenseExpires: c.License.Expires(),
	}
	s.ActiveAlarms, s.UnknownVMs = c.Alarms.Active(), c.Link.Orphans.Total()
	for _, a := range s.ActiveAlarms {
		s.Alarms = append(s.Alarms, a.Message)
	}
	if m, on := c.Maintenance.Active(); on {
		s.Maintenance = m.Shown()
	}
	r, err := c.opts.Registry.Status(ctx)
	if err != nil || r.Status != "Running" {
		s.RegistryStatus = "FAIL"
	}
	s.RegistryDamaged = len(r.Damaged)
	return s
}
