package controller

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Templates lists the templates of the registry.
func (c *Controller) Templates(ctx context.Context) ([]api.Template, error) {
	list, err := c.opts.Registry.List(ctx)
	if err != nil {
		return nil, registryError(err)
	}
	return list, nil
}

// Template gives one template with its versions; farm.CodeNotFound when there is none.
func (c *Controller) Template(ctx context.Context, id string) (api.TemplateDetail, error) {
	if uuid.Validate(id) != nil {
		return api.TemplateDetail{}, farm.NotFound()
	}
	detail, err := c.opts.Registry.Detail(ctx, strings.ToLower(id))
	if err != nil {
		return api.TemplateDetail{}, registryError(err)
	}
	return detail, nil
}

// RegistryDisk gives the room of the registry's disk.
func (c *Controller) RegistryDisk(ctx context.Context) (api.DiskInfo, error) {
	disk, err := c.opts.Registry.Disk(ctx)
	if err != nil {
		return api.DiskInfo{}, registryError(err)
	}
	return disk, nil
}

// Status says how the controller and its registry are.
func (c *Controller) Status(ctx context.Context) api.ControllerStatus {
	s := api.ControllerStatus{
		Status: "Running", Version: c.opts.Version, RegistryAddress: c.opts.RegistryAddress,
		RegistryStatus: "Running", License: string(c.Tier()), LicenseExpires: c.opts.Licence.Expires(),
	}
	s.Alarms, s.UnknownVMs = c.alarms()
	if m, on := c.Maintenance(); on {
		s.Maintenance = m.Shown()
	}
	if r, err := c.opts.Registry.Status(ctx); err != nil || r.Status != "Running" {
		s.RegistryStatus = "FAIL"
	}
	return s
}

// alarms is everything that an operator has to look at, and how many VMs nobody owns.
func (c *Controller) alarms() (list []string, unknown int) {
	list, unknown = c.unknownAlarms()
	if alarm := c.opts.Licence.Alarm(); alarm != "" {
		list = append(list, alarm)
	}
	return list, unknown
}
