package authrest

import (
	"maps"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// permissionPaths are the two spellings of the path of permissions: clients use both.
var permissionPaths = []string{"/admin/api/v1/permission", "/admin/v1/api/permission"}

// saved is the response that clients expect to a change of permissions.
const saved rest.MessageOnly = "Saved"

// The permissions for permission routes.
const (
	permView        = "view_permissions"
	permViewGroups  = "view_prmission_groups" // so spelt
	permUpdate      = "update_permission_groups"
	permDelete      = "delete_permission_groups"
	groupName       = "groupName"
	permissionsName = "permissions"
)

func (s *server) permissionRoutes() (all []rest.Route) {
	for _, path := range permissionPaths {
		group := path + "/group/{" + groupName + "}"
		all = append(all,
			rest.Route{Pattern: "GET " + path, Permission: permView, Handle: s.listPermissions},
			rest.Route{Pattern: "GET " + path + "/group", Permission: permViewGroups, Handle: s.listGroups},
			rest.Route{Pattern: "GET " + group, Permission: permViewGroups, Handle: s.showGroup},
			rest.Route{Pattern: "POST " + group, Permission: permUpdate, Handle: s.setGroup},
			rest.Route{Pattern: "PUT " + group, Permission: permUpdate, Handle: s.setGroup},
			rest.Route{Pattern: "DELETE " + group, Permission: permDelete, Handle: s.deleteGroup},
		)
		if s.opts.ResourcesManaged {
			all = append(all,
				rest.Route{Pattern: "GET " + path +
					"/resources/permissions", Permission: permView, Handle: s.listRights},
				rest.Route{Pattern: "GET " + group + "/resources", Permission: permViewGroups, Handle: s.listResources},
				rest.Route{Pattern: "POST " + group +
					"/resources", Permission: permUpdate, DecodesBody: true, Handle: s.setResources},
			)
		}
	}
	return s.waitConsistentFirst(all)
}

func (s *server) listPermissions(*rest.Request) (any, error) {
	list := []api.Permission{}
	for _, p := range farm.AllPermissions(s.opts.Service) {
		list = append(list,
			api.Permission{Name: string(p.Name), Area: p.Category, Label: p.Label, Description: p.Description})
	}
	return list, nil
}

// listGroups returns the permission groups by name, including those that only have rights on resources.
func (s *server) listGroups(*rest.Request) (any, error) {
	g := s.opts.Grants.Grants()
	names := slices.AppendSeq(slices.Collect(maps.Keys(g.Groups)), maps.Keys(g.Resources))
	slices.Sort(names)
	list := []api.PermissionGroup{}
	for _, name := range slices.Compact(names) {
		list = append(list, groupToAPI(g, name))
	}
	return list, nil
}

func groupToAPI(g auth.Grants, name string) api.PermissionGroup {
	return api.PermissionGroup{Name: name, Permissions: permissionTexts(g.Groups[name])}
}

func permissionTexts(list []farm.Permission) []string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = string(p)
	}
	return out
}

func toPermissions(list []string) []farm.Permission {
	out := make([]farm.Permission, len(list))
	for i, p := range list {
		out[i] = farm.Permission(p)
	}
	return out
}

func (s *server) showGroup(r *rest.Request) (any, error) {
	g, name := s.opts.Grants.Grants(), r.PathValue(groupName)
	_, granted := g.Groups[name]
	if _, onResources := g.Resources[name]; !granted && !onResources {
		return nil, farm.NotFound()
	}
	return groupToAPI(g, name), nil
}

// setGroup replaces the permissions of a group, and creates it if needed.
func (s *server) setGroup(r *rest.Request) (any, error) {
	if !r.Params.Has(permissionsName) {
		r.Params.RecordError(permissionsName, "is required")
	}
	list := r.Params.CommaList(permissionsName)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return s.changeGrants(r, func(g auth.Grants, name string) (auth.Grants, error) {
		return g.SetGroup(s.opts.Service, name, toPermissions(list))
	})
}

func (s *server) deleteGroup(r *rest.Request) (any, error) {
	return s.changeGrants(r, auth.Grants.DeleteGroup)
}

// changeGrants changes the permissions of a permission group.
func (s *server) changeGrants(r *rest.Request, do func(auth.Grants, string) (auth.Grants, error)) (any, error) {
	name := r.PathValue(groupName)
	err := s.opts.Grants.Change(r.Context(), func(g auth.Grants) (auth.Grants, error) { return do(g, name) })
	if err != nil {
		return nil, err
	}
	rest.AuditSubject(r.Request, name)
	return saved, nil
}

// listRights returns the rights that exist for the resources of this service.
func (s *server) listRights(*rest.Request) (any, error) {
	list := []api.ResourcePermissions{}
	for _, kind := range farm.ResourceTypes(s.opts.Service) {
		rights := api.ResourcePermissions{ResourceType: string(kind), Permissions: map[string]api.PermissionText{}}
		for _, p := range farm.ResourcePermissions(kind) {
			rights.Permissions[string(p.Name)] = api.PermissionText{Label: p.Label, Description: p.Description}
		}
		list = append(list, rights)
	}
	return list, nil
}

func (s *server) listResources(r *rest.Request) (any, error) {
	list := []api.Resource{}
	for _, on := range s.opts.Grants.Grants().Resources[r.PathValue(groupName)] {
		list = append(list,
			api.Resource{
				ID: on.ID, IDType: on.IDType, Type: string(on.Type), Permissions: permissionTexts(on.Permissions),
			})
	}
	return list, nil
}

// setResources replaces the rights of a group on single resources: an array of them.
func (s *server) setResources(r *rest.Request) (any, error) {
	items, err := r.Params.ObjectList(auth.MaxGroupResources)
	if err != nil {
		return nil, err
	}
	list := make([]farm.ResourcePermission, 0, len(items))
	for _, p := range items {
		if !p.Has(permissionsName) {
			p.RecordError(permissionsName, "is required")
		}
		list = append(list, farm.ResourcePermission{
			ID: p.Required("id"), IDType: p.String("id_type"), Type: farm.ResourceType(p.Required("type")),
			Permissions: toPermissions(p.CommaList(permissionsName)),
		})
		if err := p.Err(); err != nil {
			return nil, err
		}
	}
	return s.changeGrants(r, func(g auth.Grants, name string) (auth.Grants, error) {
		return g.SetGroupResources(s.opts.Service, name, list)
	})
}
