package controller

import (
	"context"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// Templates lists the templates of the registry that the caller may list.
func (c *Controller) Templates(ctx context.Context) ([]api.Template, error) {
	r, err := c.rightsOn(ctx, "")
	if err != nil {
		return nil, err
	}
	if !r.allows(toList) {
		return nil, toList.forbidden()
	}
	list, err := c.opts.Registry.List(ctx)
	if err != nil {
		return nil, registryError(err)
	}
	if r.CallerRights == nil || !r.Managed {
		return list, nil
	}
	return slices.DeleteFunc(slices.Clone(list), func(t api.Template) bool { return !r.on(t.ID, toList.right) }), nil
}

// Template returns one template with its versions; farm.CodeNotFound when it does not exist, or the
// caller may not list it.
func (c *Controller) Template(ctx context.Context, id string) (api.TemplateDetail, error) {
	return c.allowed(ctx, id, toList)
}

// RevertTemplate removes a version of a template and all newer ones; with neither tag nor number
// the latest. The registry is asked for exactly the version that was found here: a repeated call
// must not remove one more.
func (c *Controller) RevertTemplate(ctx context.Context, id, tag string, number *int) error {
	detail, v, err := c.version(ctx, toRevert, id, tagOrNumber{tag, number})
	if err != nil {
		return err
	}
	err = c.opts.Registry.Revert(ctx,
		transfer.Ref{ID: detail.ID, Tag: v.Tag, Version: &v.Number, ContentID: v.ContentID})
	switch {
	case err == nil:
		return nil
	case farm.CodeOf(err) == farm.CodeNoVersion: // reverted a moment ago
		return farm.Refused("No such tag %s", v.Tag)
	default:
		return registryError(err)
	}
}

// RegistryDisk returns the free space of the registry's disk.
func (c *Controller) RegistryDisk(ctx context.Context) (api.DiskInfo, error) {
	disk, err := c.opts.Registry.Disk(ctx)
	if err != nil {
		return api.DiskInfo{}, registryError(err)
	}
	return disk, nil
}

// Status returns the state of the controller and its registry.
func (c *Controller) Status(ctx context.Context) api.ControllerStatus {
	s := api.ControllerStatus{
		Status: "Running", Version: c.opts.Version, RegistryAddress: c.opts.RegistryAddress,
		RegistryStatus: "Running", License: string(c.License.Tier()), LicenseExpires: c.License.Expires(),
	}
	s.ActiveAlarms, s.UnknownVMs = c.Alarms(), c.Link.Orphans.Total()
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
