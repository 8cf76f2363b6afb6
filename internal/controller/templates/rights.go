package templates

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
	listRight   = requiredRight{permission: "list_vms", right: "list"}
	pullRight   = requiredRight{right: "pull"}
	saveRight   = requiredRight{right: "save_image"}
	revertRight = requiredRight{permission: "revert", right: "delete_revert"}
	deleteRight = requiredRight{permission: "delete_vm", right: "delete_revert"}

	// saveRevertRight is for a save that reverts: a caller that may not revert separately may have
	// this alone.
	saveRevertRight = requiredRight{permission: "save_revert", right: "delete_revert", or: "revert"}
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

// check refuses a caller that lacks a required right. To a caller that may not list a template, it
// does not exist.
func (r rights) check(n requiredRight, template string) error {
	switch {
	case r.CallerRights == nil:
		return nil
	case !r.allows(n):
		return n.forbidden()
	case r.On(template, string(n.right)):
		return nil
	case r.On(template, string(listRight.right)):
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

// enforced reports whether the registry requires permissions of callers at all.
func (r rights) enforced() bool { return r.CallerRights != nil && r.Enforced }

// checkSaveRevert refuses a caller that may not save into a template with a revert. The registry
// authorizes the node that carries it out by that node's own credential. denied is why the caller may
// not revert where the registry requires no permissions; nil: they may.
func (r rights) checkSaveRevert(template string, denied error) error {
	err := r.check(saveRight, template)
	switch {
	case err != nil:
		return err
	case !r.enforced() && denied != nil:
		return denied
	default:
		return r.check(saveRevertRight, template)
	}
}

// ForSave returns a template to a caller that may save into it.
func (t *Templates) ForSave(ctx context.Context, id string) (api.TemplateDetail, error) {
	detail, r, err := t.detail(ctx, id)
	if err == nil {
		err = r.check(saveRight, detail.ID)
	}
	return detail, err
}

// ForSaveRevert returns a template to a caller that may save into it with a revert. denied is why the
// caller may not revert where the registry requires no permissions; nil: they may.
func (t *Templates) ForSaveRevert(ctx context.Context, id string, denied error) (api.TemplateDetail, error) {
	detail, r, err := t.detail(ctx, id)
	if err == nil {
		err = r.checkSaveRevert(detail.ID, denied)
	}
	return detail, err
}

// Rights returns what the caller may do with a template, or with all of them for "", according to the
// registry; nil means everything.
func (t *Templates) Rights(ctx context.Context, template string) (*api.CallerRights, error) {
	r, err := t.rightsOn(ctx, template)
	return r.CallerRights, err
}

// rightsOn returns what the caller may do with a template, or with all of them for "".
func (t *Templates) rightsOn(ctx context.Context, template string) (rights, error) {
	if t.opts.Rights == nil {
		return rights{known: true}, nil
	}
	got, err := t.opts.Rights(ctx, template)
	if err != nil {
		return rights{}, registryError(err)
	}
	return rights{got, true}, nil
}

// detail returns a template with its versions, and concurrently requests what the caller may do
// with it. farm.CodeNotFound when it does not exist.
func (t *Templates) detail(ctx context.Context, id string) (api.TemplateDetail, rights, error) {
	none := api.TemplateDetail{}
	if uuid.Validate(id) != nil {
		return none, rights{}, farm.NotFound()
	}
	id = strings.ToLower(id)
	type answer struct {
		rights
		err error
	}
	answers := make(chan answer, 1)
	query := func() {
		r, err := t.rightsOn(ctx, id)
		answers <- answer{r, err}
	}
	if t.opts.Rights == nil {
		query()
	} else {
		go query()
	}
	detail, err := t.opts.Registry.TemplateDetail(ctx, id)
	got := <-answers
	switch {
	case err != nil:
		if farm.CodeOf(err) == farm.CodeNotFound {
			t.known.remove(id)
		}
		return none, got.rights, registryError(err)
	case got.err != nil:
		return none, got.rights, got.err
	}
	t.known.enqueue(detail)
	return detail, got.rights, nil
}

// allowed returns a template with its versions to a caller with the required right.
func (t *Templates) allowed(ctx context.Context, id string, n requiredRight) (api.TemplateDetail, error) {
	detail, r, err := t.detail(ctx, id)
	if !r.allows(n) {
		return detail, n.forbidden()
	}
	if err == nil {
		err = r.check(n, detail.ID)
	}
	if err != nil {
		return api.TemplateDetail{}, err
	}
	if !r.on(detail.ID, pullRight.right) {
		detail = detail.WithoutFiles()
	}
	return detail, nil
}
