package controller

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// RightsQuery returns what the caller of a context may do at the registry: with one template, or
// with all of them for "". nil means everything. It does not report whether a template exists.
type RightsQuery func(ctx context.Context, template string) (*api.CallerRights, error)

// requiredRight is what the registry must grant the caller of a use case that is about a template.
// What the controller does there automatically, as for a start, requires no permission of the
// caller, but always the right on the template.
type requiredRight struct {
	permission farm.Permission // of the registry; "": none
	right      farm.Permission
	or         farm.Permission // of the registry, an alternative; "": none
}

// The required rights.
var (
	toList   = requiredRight{permission: "list_vms", right: "list"}
	toPull   = requiredRight{right: "pull"}
	toSave   = requiredRight{right: "save_image"}
	toRevert = requiredRight{permission: "revert", right: "delete_revert"}
	toDelete = requiredRight{permission: "delete_vm", right: "delete_revert"}

	// toSaveRevert is for a save that reverts: a caller that may not revert separately may have
	// this alone.
	toSaveRevert = requiredRight{permission: "save_revert", right: "delete_revert", or: "revert"}
)

// forbidden returns the refusal of a caller without the permission.
func (n requiredRight) forbidden() error {
	names := string(n.permission)
	if n.or != "" {
		names = string(n.or) + " or " + names
	}
	return farm.Errorf(farm.CodeForbidden, "Your credential needs the permission %s at the registry", names)
}

// rights are what a caller may do at the registry; nil means everything.
type rights struct {
	*api.CallerRights
	known bool // the registry has returned them
}

// meets refuses a caller that lacks a required right. To a caller that may not list a template, it
// does not exist.
func (r rights) meets(n requiredRight, template string) error {
	switch {
	case r.CallerRights == nil:
		return nil
	case !r.allows(n):
		return n.forbidden()
	case r.On(template, string(n.right)):
		return nil
	case r.On(template, string(toList.right)):
		return auth.ForbiddenOn(farm.ResourceTemplate, template, n.right)
	default:
		return farm.NotFound()
	}
}

// allows reports whether the caller has the required permission.
func (r rights) allows(n requiredRight) bool {
	return r.CallerRights == nil || n.permission == "" || r.Allows(string(n.permission)) ||
		n.or != "" && r.Allows(string(n.or))
}

// on reports whether the caller has a right on a template.
func (r rights) on(template string, right farm.Permission) bool {
	return r.CallerRights == nil || r.On(template, string(right))
}

// judges reports whether the registry requires permissions of callers at all.
func (r rights) judges() bool { return r.CallerRights != nil && r.Enforced }

// saves refuses a caller that may not save into a template as requested. The registry authorizes
// the node that carries it out by that node's own credential.
func (r rights) saves(ask SaveImageRequest, template string) error {
	err := r.meets(toSave, template)
	switch {
	case err != nil || !ask.RevertBeforePush:
		return err
	case !r.judges() && ask.NoRevert != nil:
		return ask.NoRevert
	default:
		return r.meets(toSaveRevert, template)
	}
}

// rightsOn returns what the caller may do with a template, or with all of them.
func (c *Controller) rightsOn(ctx context.Context, template string) (rights, error) {
	if c.opts.Rights == nil {
		return rights{known: true}, nil
	}
	got, err := c.opts.Rights(ctx, template)
	if err != nil {
		return rights{}, registryError(err)
	}
	return rights{got, true}, nil
}

// detail returns a template with its versions, and concurrently requests what the caller may do
// with it. farm.CodeNotFound when it does not exist.
func (c *Controller) detail(ctx context.Context, id string) (api.TemplateDetail, rights, error) {
	none := api.TemplateDetail{}
	if uuid.Validate(id) != nil {
		return none, rights{}, farm.NotFound()
	}
	id = strings.ToLower(id)
	type answer struct {
		rights
		err error
	}
	asked := make(chan answer, 1)
	ask := func() {
		r, err := c.rightsOn(ctx, id)
		asked <- answer{r, err}
	}
	if c.opts.Rights == nil {
		ask()
	} else {
		go ask()
	}
	detail, err := c.opts.Registry.Detail(ctx, id)
	got := <-asked
	switch {
	case err != nil:
		if farm.CodeOf(err) == farm.CodeNotFound {
			c.known.forget(id)
		}
		return none, got.rights, registryError(err)
	case got.err != nil:
		return none, got.rights, got.err
	}
	c.known.observe(detail)
	return detail, got.rights, nil
}

// allowed returns a template with its versions to a caller with the required right.
func (c *Controller) allowed(ctx context.Context, id string, n requiredRight) (api.TemplateDetail, error) {
	detail, r, err := c.detail(ctx, id)
	if !r.allows(n) {
		return detail, n.forbidden()
	}
	if err == nil {
		err = r.meets(n, detail.ID)
	}
	if err != nil {
		return api.TemplateDetail{}, err
	}
	if !r.on(detail.ID, toPull.right) {
		detail = detail.WithoutFiles()
	}
	return detail, nil
}

// RegistryRights returns what the caller may do with a template, according to the registry; nil
// means everything.
func (c *Controller) RegistryRights(ctx context.Context, template string) (*api.CallerRights, error) {
	r, err := c.rightsOn(ctx, template)
	return r.CallerRights, err
}

// VisibleTemplates returns which templates the caller may list, as far as that is known now.
func (c *Controller) VisibleTemplates(ctx context.Context) func(id string) bool {
	r, err := c.rightsOn(ctx, "")
	if err != nil || !r.allows(toList) {
		return func(string) bool { return false }
	}
	return func(id string) bool { return r.on(id, toList.right) }
}
