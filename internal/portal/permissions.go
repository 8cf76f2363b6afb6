package portal

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// permissionClient is a service that has its own permissions.
type permissionClient interface {
	Permissions(ctx context.Context) ([]api.Permission, error)
	PermissionGroups(ctx context.Context) ([]api.PermissionGroup, error)
	SetPermissionGroup(ctx context.Context, g api.PermissionGroup) error
	DeletePermissionGroup(ctx context.Context, name string) error
}

// permissionAPI is the permissions of permission groups at a service.
type permissionAPI struct {
	Key, Name string // of the service
	of        permissionClient
}

// permissionServices are those whose permissions can be managed from here.
func (v *visit) permissionServices() []permissionAPI {
	all := []permissionAPI{{Key: "controller", Name: "Controller", of: v.Controller}}
	if v.registry != nil {
		all = append(all, permissionAPI{Key: "registry", Name: "Registry", of: v.registry})
	}
	return all
}

// permissionList is the page of the permission groups.
type permissionList struct {
	Disabled         bool // callers do not have to log in
	RegistryIsRemote bool // the registry is another process, which keeps its own
	Services         []string
	HiddenReasons    []string // why those of a service are not shown
	Rows             []permissionRow
	CurlCommand      string
	ChangeDenied     string // why the visitor can change none
	DeleteDenied     string // why they can delete none
}

// permissionRow is a permission group with the number of its permissions in each service.
type permissionRow struct {
	Name   string
	Counts []int
}

const pathGroups = "/admin/api/v1/permission/group"

func listPermissionGroups(v *visit) (any, error) {
	list := permissionList{Disabled: !v.loginRequired, RegistryIsRemote: v.registry == nil, CurlCommand: curlCommand(v,
		"GET", pathGroups, "")}
	if list.Disabled {
		return list, nil
	}
	list.ChangeDenied, list.DeleteDenied = v.deniedByAll("grant"), v.deniedByAll("forget grants")
	rows := map[string][]int{}
	services := v.permissionServices()
	for i, s := range services {
		list.Services = append(list.Services, s.Name)
		groups, err := s.of.PermissionGroups(v)
		if client.CodeOf(err) == client.ErrUnauthenticated {
			return nil, err
		}
		if err != nil {
			list.HiddenReasons = append(list.HiddenReasons, s.Name+": "+notShownReason(err))
		}
		for _, g := range groups {
			if rows[g.Name] == nil {
				rows[g.Name] = make([]int, len(services))
			}
			rows[g.Name][i] = len(g.Permissions)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		list.Rows = append(list.Rows, permissionRow{name, rows[name]})
	}
	return list, nil
}

// permissionForm is the form of a permission group.
type permissionForm struct {
	Name        string // "": a new one
	Services    []permissionService
	CurlCommand string
}

// permissionService is the permissions that a service has, by purpose.
type permissionService struct {
	Key, Name, HiddenReason string
	Areas                   []permissionArea
	Original                string // those that the group has
}

// permissionArea is permissions under a heading.
type permissionArea struct {
	Name        string
	Permissions []permissionChoice
}

// permissionChoice is a permission that a group has, or not.
type permissionChoice struct {
	api.Permission
	Selected bool
}

func askPermissions(v *visit) (any, error) {
	f := permissionForm{Name: strings.TrimSpace(v.query.Get("name"))}
	f.CurlCommand = curlCommand(v, "POST", pathGroups+"/"+cmp.Or(f.Name, "NAME"), `{"permissions":["list_vms"]}`)
	for _, s := range v.permissionServices() {
		p, err := permissionsOf(v, s, f.Name)
		if client.CodeOf(err) == client.ErrUnauthenticated {
			return nil, err
		}
		p.HiddenReason = notShownReason(err)
		f.Services = append(f.Services, p)
	}
	return f, nil
}

// permissionsOf returns the permissions of a service, and which of them a group has.
func permissionsOf(v *visit, s permissionAPI, group string) (permissionService, error) {
	p := permissionService{Key: s.Key, Name: s.Name}
	all, err := s.of.Permissions(v)
	if err != nil {
		return p, err
	}
	has, err := groupPermissions(v, s, group)
	if err != nil {
		return p, err
	}
	p.Original = strings.Join(has, ",")
	p.Areas = permissionAreas(all, has)
	return p, nil
}

// permissionAreas returns permissions by their purpose, with those selected that has names.
func permissionAreas(all []api.Permission, has []string) (areas []permissionArea) {
	for _, one := range all {
		i := slices.IndexFunc(areas, func(a permissionArea) bool { return a.Name == one.Area })
		if i < 0 {
			i = len(areas)
			areas = append(areas, permissionArea{Name: one.Area})
		}
		areas[i].Permissions = append(areas[i].Permissions, permissionChoice{one, slices.Contains(has, one.Name)})
	}
	return areas
}

// groupPermissions are the permissions that a group has at a service.
func groupPermissions(v *visit, s permissionAPI, group string) ([]string, error) {
	groups, err := s.of.PermissionGroups(v)
	for _, g := range groups {
		if g.Name == group {
			return g.Permissions, nil
		}
	}
	return nil, err
}

func doPermissions(v *visit) (actionResult, error) {
	name := strings.TrimSpace(v.query.Get("name"))
	if name == "" {
		return actionResult{}, formError("Name required: a user group, a user, or an API key ID")
	}
	return v.forEachShown(name, func(s permissionAPI) error {
		now, err := groupPermissions(v, s, name)
		if err != nil {
			return err
		}
		return s.of.SetPermissionGroup(v,
			api.PermissionGroup{Name: name, Permissions: rebaseSelection(v.query, s.Key, now, v.query[s.Key])})
	})
}

// forEachShown runs do for each service that the form has shown.
func (v *visit) forEachShown(name string, do func(permissionAPI) error) (actionResult, error) {
	out := actionResult{Back: "/permission-groups"}
	for _, s := range v.permissionServices() {
		if !slices.Contains(v.query["service"], s.Key) {
			continue
		}
		r := itemResult{Name: name + " at the " + s.Key, Said: "Saved"}
		if err := do(s); err != nil {
			r.Reason = notShownReason(err)
		}
		out.Items = append(out.Items, r)
	}
	if len(out.Items) > 0 && out.Failed() == 0 {
		return actionResult{ResultPath: "/permission-groups"}, nil
	}
	return out, nil
}

func askDeletePermissions(v *visit) (any, error) { return askPermissions(v) }

func doDeletePermissions(v *visit) (actionResult, error) {
	name := v.query.Get("name")
	return v.forEachShown(name, func(s permissionAPI) error {
		err := s.of.DeletePermissionGroup(v, name)
		if client.CodeOf(err) == client.ErrNotFound { // it has nothing at this service
			return nil
		}
		return err
	})
}
