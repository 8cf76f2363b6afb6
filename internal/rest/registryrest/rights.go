package registryrest

import (
	"net/http"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
)

// The rights on templates.
const (
	rightConfig = "get_config"
	rightDelete = "delete_revert"
	rightPull   = "pull"
	rightPush   = "push_tag"
	rightArch   = "set_arch"
)

// checkRight refuses a caller without a right on a template.
func checkRight(r *rest.Request, id string, right farm.Permission) error {
	return rest.CallerOf(r.Context()).RequireVisibleRight(farm.ResourceTemplate, id, right)
}

// visibleTemplates returns the templates that the caller may see.
func (s service) visibleTemplates(r *rest.Request) []api.Template {
	caller, all := rest.CallerOf(r.Context()), s.registry.ListTemplates()
	if !caller.ResourcesManaged() {
		return all
	}
	return slices.DeleteFunc(all, func(t api.Template) bool { return !caller.CanSee(farm.ResourceTemplate, t.ID) })
}

// visibleTemplate returns one of them, with the names of its layer files if the caller may pull it.
func (s service) visibleTemplate(r *rest.Request, id string) (api.TemplateDetail, error) {
	caller := rest.CallerOf(r.Context())
	if !caller.CanSee(farm.ResourceTemplate, id) {
		return api.TemplateDetail{}, farm.NotFound()
	}
	detail, err := s.registry.TemplateDetail(id)
	if err == nil && !caller.HasRight(farm.ResourceTemplate, id, rightPull) {
		detail = detail.WithoutFiles()
	}
	return detail, err
}

// checkPush authorizes a push. A new template has no owner: a caller that may push may create one.
func checkPush(caller rest.Caller, t registry.PushTarget) error {
	if t.Reverts {
		if err := caller.RequirePermission(permRevert); err != nil {
			return err
		}
	}
	if !t.Exists {
		return checkCreate(caller, t)
	}
	if err := caller.RequireVisibleRight(farm.ResourceTemplate, t.TemplateID, rightPush); err != nil || !t.Reverts {
		return err
	}
	return caller.RequireVisibleRight(farm.ResourceTemplate, t.TemplateID, rightDelete)
}

// checkCreate refuses to create a template under the ID of a deleted one, which others may still refer to, for
// callers without the permission to delete templates.
func checkCreate(caller rest.Caller, t registry.PushTarget) error {
	if !t.Deleted || caller.RequirePermission(permDelete) == nil {
		return nil
	}
	return farm.Errorf(farm.CodeForbidden,
		"You need the permission %s to push the template %s, which was deleted, again: "+
			"push under another id", permDelete, t.TemplateID)
}

// checkResume authorizes the continuation of a push like the start of one. An unknown push is not refused here: the
// use case that follows reports it.
func (s service) checkResume(r *http.Request) error {
	caller := rest.CallerOf(r.Context())
	t, err := s.registry.PushTarget(r.PathValue("session"))
	switch {
	case err == nil && caller.IsNode():
		return checkNodeResume(caller, t)
	case err == nil:
		err = checkPush(caller, t)
	}
	if farm.CodeOf(err) == farm.CodeNotFound && !t.Exists {
		return nil
	}
	return err
}

// checkLayerDownload authorizes the download of a layer for callers that may pull a template with it. A layer that no
// template references is allowed to all callers.
func (s service) checkLayerDownload(r *http.Request, root string) error {
	caller := rest.CallerOf(r.Context())
	if caller.IsNode() {
		return s.checkNodeLayer(caller, root)
	}
	if !caller.ResourcesManaged() {
		return nil
	}
	having := s.registry.TemplatesWithLayer(root)
	may := func(id string) bool { return caller.HasRight(farm.ResourceTemplate, id, rightPull) }
	if len(having) > 0 && !slices.ContainsFunc(having, may) {
		return farm.NotFound()
	}
	return nil
}

// getRights returns what the caller may do here, with one template or with all. The result for a missing template
// is the same as for one without rights.
func (s service) getRights(r *rest.Request) (any, error) {
	id := r.Params.String("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return Rights(rest.CallerOf(r.Context()), s.registry, id), nil
}

// Rights returns what a caller may do at a registry, with one template or, for "", with all.
func Rights(caller rest.Caller, reg *registry.Registry, template string) *api.CallerRights {
	ids := []string{strings.ToLower(template)}
	if template == "" && caller.ResourcesManaged() {
		ids = ids[:0]
		for _, t := range reg.ListTemplates() {
			ids = append(ids, t.ID)
		}
	}
	return caller.RightsOn(farm.ServiceRegistry, farm.ResourceTemplate, ids)
}
