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

// granter is a service that has its own permissions.
type granter interface {
	Permissions(ctx context.Context) ([]api.Permission, error)
	PermissionGroups(ctx context.Context) ([]api.PermissionGroup, error)
	SetPermissionGroup(ctx context.Context, g api.PermissionGroup) error
	DeletePermissionGroup(ctx context.Context, name string) error
}

// grants is the permissions of permission groups at a service.
type grants struct {
	Key, Name string // of the service
	of        granter
}

// services are those whose permissions can be managed from here.
func (v *visit) services() []grants {
	all := []grants{{Key: "controller", Name: "Controller", of: v.Controller}}
	if v.registry != nil {
		all = append(all, grants{Key: "registry", Name: "Registry", of: v.registry})
	}
	return all
}

// permissionList is the page of the permission groups.
type permissionList struct {
	Off      bool // callers do not have to log in
	Apart    bool // the registry is another process, which keeps its own
	Services []string
	Not      []string // why those of a service are not shown
	Rows     []permissionRow
	Curl     string
	GrantNot string // why the visitor can change none
	DropNot  string // why they can delete none
}

// permissionRow is a permission group with the number of its permissions in each service.
type permissionRow struct {
	Name   string
	Counts []int
}

const pathGroups = "/admin/api/v1/permission/group"

func listPermissionGroups(v *visit) (any, error) {
	list := permissionList{Off: !v.guarded, Apart: v.registry == nil, Curl: curl(v, "GET", pathGroups, "")}
	if list.Off {
		return list, nil
	}
	list.GrantNot, list.DropNot = v.anywhere("grant"), v.anywhere("forget grants")
	rows := map[string][]int{}
	services := v.services()
	for i, s := range services {
		list.Services = append(list.Services, s.Name)
		groups, err := s.of.PermissionGroups(v)
		if client.CodeOf(err) == client.ErrUnauthenticated {
			return nil, err
		}
		if err != nil {
			list.Not = append(list.Not, s.Name+": "+refusal(err))
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
	Name     string // "": a new one
	Services []permissionService
	Curl     string
}

// permissionService is the permissions that a service has, by purpose.
type permissionService struct {
	Key, Name, Not string
	Areas          []permissionArea
	Was            string // those that the group has
}

// permissionArea is permissions under a heading.
type permissionArea struct {
	Name string
	List []permissionChoice
}

// permissionChoice is a permission that a group has, or not.
type permissionChoice struct {
	api.Permission
	On bool
}

func askPermissions(v *visit) (any, error) {
	f := permissionForm{Name: strings.TrimSpace(v.q.Get("name"))}
	f.Curl = curl(v, "POST", pathGroups+"/"+cmp.Or(f.Name, "NAME"), `{"permissions":["list_vms"]}`)
	for _, s := range v.services() {
		p, err := permissionsOf(v, s, f.Name)
		if client.CodeOf(err) == client.ErrUnauthenticated {
			return nil, err
		}
		p.Not = refusal(err)
		f.Services = append(f.Services, p)
	}
	return f, nil
}

// permissionsOf returns the permissions of a service, and which of them a group has.
func permissionsOf(v *visit, s grants, group string) (permissionService, error) {
	p := permissionService{Key: s.Key, Name: s.Name}
	all, err := s.of.Permissions(v)
	if err != nil {
		return p, err
	}
	has, err := grantedTo(v, s, group)
	if err != nil {
		return p, err
	}
	p.Was = strings.Join(has, ",")
	for _, one := range all {
		i := slices.IndexFunc(p.Areas, func(a permissionArea) bool { return a.Name == one.Area })
		if i < 0 {
			i = len(p.Areas)
			p.Areas = append(p.Areas, permissionArea{Name: one.Area})
		}
		p.Areas[i].List = append(p.Areas[i].List, permissionChoice{one, slices.Contains(has, one.Name)})
	}
	return p, nil
}

// grantedTo are the permissions that a group has at a service.
func grantedTo(v *visit, s grants, group string) ([]string, error) {
	groups, err := s.of.PermissionGroups(v)
	for _, g := range groups {
		if g.Name == group {
			return g.Permissions, nil
		}
	}
	return nil, err
}

func doPermissions(v *visit) (actionResult, error) {
	name := strings.TrimSpace(v.q.Get("name"))
	if name == "" {
		return actionResult{}, invalid("Name required: a user group, a user, or an API key ID")
	}
	return v.eachShown(name, func(s grants) error {
		now, err := grantedTo(v, s, name)
		if err != nil {
			return err
		}
		return s.of.SetPermissionGroup(v,
			api.PermissionGroup{Name: name, Permissions: rebased(v.q, s.Key, now, v.q[s.Key])})
	})
}

// eachShown runs do for each service that the form has shown.
func (v *visit) eachShown(name string, do func(grants) error) (actionResult, error) {
	out := actionResult{Back: "/permission-groups"}
	for _, s := range v.services() {
		if !slices.Contains(v.q["service"], s.Key) {
			continue
		}
		r := itemResult{Name: name + " at the " + s.Key, Said: "Saved"}
		if err := do(s); err != nil {
			r.Why = refusal(err)
		}
		out.Items = append(out.Items, r)
	}
	if len(out.Items) > 0 && out.Failed() == 0 {
		return actionResult{To: "/permission-groups"}, nil
	}
	return out, nil
}

func askDeletePermissions(v *visit) (any, error) { return askPermissions(v) }

func doDeletePermissions(v *visit) (actionResult, error) {
	name := v.q.Get("name")
	return v.eachShown(name, func(s grants) error {
		err := s.of.DeletePermissionGroup(v, name)
		if client.CodeOf(err) == client.ErrNotFound { // it has nothing at this service
			return nil
		}
		return err
	})
}
