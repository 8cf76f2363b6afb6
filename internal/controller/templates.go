package controller

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
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

// RevertTemplate removes a version of a template and all newer ones; by neither tag nor
// number the latest. The registry is asked for exactly the version that was found here:
// done twice it must not remove one more.
func (c *Controller) RevertTemplate(ctx context.Context, id, tag string, number *int) error {
	detail, v, err := c.version(ctx, id, tag, number)
	if err != nil {
		return err
	}
	err = c.opts.Registry.Revert(ctx, transfer.Ref{ID: detail.ID, Tag: v.Tag, Version: &v.Number, ContentID: v.ContentID})
	switch {
	case err == nil:
		return nil
	case farm.CodeOf(err) == farm.CodeNoVersion: // reverted a moment ago
		return farm.Refused("No such tag %s", v.Tag)
	default:
		return registryError(err)
	}
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
	if trouble := c.opts.Packages.Trouble(); trouble != "" {
		list = append(list, trouble)
	}
	if alarm := c.opts.Licence.Alarm(); alarm != "" {
		list = append(list, alarm)
	}
	list = append(list, c.events.alarms()...)
	return list, unknown
}
