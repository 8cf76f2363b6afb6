package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/buildyard/buildyard/api"
)

const pathPermission = "/admin/api/v1/permission"

// Permissions returns the permissions that the service has.
func (s *service) Permissions(ctx context.Context) ([]api.Permission, error) {
	return fetch[[]api.Permission](ctx, s, get(pathPermission, nil))
}

// PermissionGroups returns the permission groups with their permissions.
func (s *service) PermissionGroups(ctx context.Context) ([]api.PermissionGroup, error) {
	return fetch[[]api.PermissionGroup](ctx, s, get(pathPermission+"/group", nil))
}

// groupCall is a call on a permission group, whose name may look like a path.
func groupCall(method, name, below string) (call, error) {
	root := pathPermission + "/group/"
	if name == "" || name == "." || name == ".." {
		return call{},
			&Error{Code: ErrInvalid, Message: "group: name of a permission group required", Method: method, Path: root}
	}
	return call{method: method, path: root + name + below, raw: root + url.PathEscape(name) + below, again: true}, nil
}

// PermissionGroup returns the permissions of a permission group.
func (s *service) PermissionGroup(ctx context.Context, name string) (g api.PermissionGroup, err error) {
	ask, err := groupCall(http.MethodGet, name, "")
	if err != nil {
		return g, err
	}
	return fetch[api.PermissionGroup](ctx, s, ask)
}

// SetPermissionGroup sets the permissions of a permission group, and creates it if needed.
func (s *service) SetPermissionGroup(ctx context.Context, g api.PermissionGroup) error {
	set, err := groupCall(http.MethodPost, g.Name, "")
	if err != nil {
		return err
	}
	if set.body = g; g.Permissions == nil {
		set.body = api.PermissionGroup{Name: g.Name, Permissions: []string{}}
	}
	return s.do(ctx, set, nil)
}

// DeletePermissionGroup removes all permissions of a permission group.
func (s *service) DeletePermissionGroup(ctx context.Context, name string) error {
	remove, err := groupCall(http.MethodDelete, name, "")
	if err != nil {
		return err
	}
	remove.again = false
	return s.do(ctx, remove, nil)
}

// ResourcePermissions returns the rights that exist for single resources: nodes of a controller, templates of a
// registry.
func (s *service) ResourcePermissions(ctx context.Context) ([]api.ResourcePermissions, error) {
	return fetch[[]api.ResourcePermissions](ctx, s, get(pathPermission+"/resources/permissions", nil))
}

// Resources returns the rights of a permission group on single resources.
func (s *service) Resources(ctx context.Context, group string) ([]api.Resource, error) {
	ask, err := groupCall(http.MethodGet, group, "/resources")
	if err != nil {
		return nil, err
	}
	return fetch[[]api.Resource](ctx, s, ask)
}

// SetResources replaces the rights of a permission group on single resources.
func (s *service) SetResources(ctx context.Context, group string, all []api.Resource) error {
	set, err := groupCall(http.MethodPost, group, "/resources")
	if err != nil {
		return err
	}
	if set.body = all; all == nil {
		set.body = []api.Resource{}
	}
	return s.do(ctx, set, nil)
}
