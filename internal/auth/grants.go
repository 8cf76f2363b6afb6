package auth

import (
	"maps"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// Limits of grants.
const (
	MaxGrantGroups    = 1000    // permission groups
	MaxGroupResources = 10_000  // resources of one permission group
	MaxResources      = 100_000 // resources of all
	maxResourceID     = 128     // bytes
)

// The parameters that refusals name, and the one type of ids that there is.
const (
	groupNameField   = "group"
	resourceIDField  = "id"
	permissionsField = "permissions"
	defaultIDType    = "id"
)

// Grants is what a service's permission groups may do. It is immutable: each change returns a new
// value, which contains only what Check allows. The zero value grants nothing.
type Grants struct {
	// Groups maps the name of a permission group, which is that of a group of users or of
	// a user, to its permissions.
	Groups map[string][]farm.Permission `json:"groups,omitempty"`
	// Resources maps the name of a permission group to its rights on single resources.
	Resources map[string][]farm.ResourcePermission `json:"resources,omitempty"`
	// Enforced reports that permissions were enforced before: no change of the license ends that.
	Enforced bool `json:"enforced,omitempty"`
}

// SetGroup sets the permissions of a group, and creates the group when it does not exist.
func (g Grants) SetGroup(s farm.Service, name string, list []farm.Permission) (Grants, error) {
	if err := checkGroupName(name); err != nil {
		return g, err
	}
	for _, p := range list {
		if !containsPermission(farm.AllPermissions(s), p) {
			return g, farm.Invalid(permissionsField, "unknown permission %.100q", p)
		}
	}
	if _, ok := g.Groups[name]; !ok && len(g.Groups) >= MaxGrantGroups {
		return g, farm.Refused("permission group limit (%d) reached; delete some", MaxGrantGroups)
	}
	g.Groups = withKey(g.Groups, name, distinct(list))
	return g, nil
}

// DeleteGroup removes a permission group. The error for an unknown one is "not found".
func (g Grants) DeleteGroup(name string) (Grants, error) {
	_, inGroups := g.Groups[name]
	_, inResources := g.Resources[name]
	if !inGroups && !inResources {
		return g, farm.NotFound()
	}
	g.Groups, g.Resources = withoutKey(g.Groups, name), withoutKey(g.Resources, name)
	return g, nil
}

// SetGroupResources replaces the rights of a permission group on single resources.
func (g Grants) SetGroupResources(s farm.Service, name string, list []farm.ResourcePermission) (Grants, error) {
	if err := checkGroupName(name); err != nil {
		return g, err
	}
	checked, err := checkResources(s, list)
	if err != nil {
		return g, err
	}
	others := 0
	for other, all := range g.Resources {
		if other != name {
			others += len(all)
		}
	}
	_, known := g.Resources[name]
	switch {
	case !known && len(g.Resources) >= MaxGrantGroups:
		return g, farm.Refused("limit of permission groups with resource rights (%d) reached; delete some",
			MaxGrantGroups)
	case others+len(list) > MaxResources:
		return g, farm.Refused("limit of resource rights of all permission groups (%d) reached", MaxResources)
	}
	g.Resources = withKey(g.Resources, name, checked)
	return g, nil
}

// WithoutResources removes the rights on some resources of a type from all permission groups;
// changed reports whether there were any.
func (g Grants) WithoutResources(kind farm.ResourceType, ids []string) (without Grants, changed bool) {
	gone := make(map[resource]bool, len(ids))
	for _, id := range ids {
		gone[newResource(kind, id)] = true
	}
	ends := func(r farm.ResourcePermission) bool { return gone[newResource(r.Type, r.ID)] }
	for name, list := range g.Resources {
		if slices.ContainsFunc(list, ends) {
			g.Resources, changed = withKey(g.Resources, name, slices.DeleteFunc(slices.Clone(list), ends)), true
		}
	}
	return g, changed
}

// Check reports whether stored grants are what the other methods would have made.
func (g Grants) Check(s farm.Service) error {
	var again Grants
	var err error
	for _, name := range slices.Sorted(maps.Keys(g.Groups)) {
		if again, err = again.SetGroup(s, name, g.Groups[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.Resources)) {
		if again, err = again.SetGroupResources(s, name, g.Resources[name]); err != nil {
			return err
		}
	}
	return nil
}

func checkGroupName(name string) error {
	if !isValidName(name) {
		return farm.Invalid(groupNameField,
			"must be printable text of 1 to %d bytes, without leading or trailing spaces",
			MaxGroupName)
	}
	if strings.EqualFold(name, RootName) {
		return farm.Invalid(groupNameField, "the permissions of %s cannot be changed: it has all of them", RootName)
	}
	return nil
}

// checkResources validates and copies resource rights.
func checkResources(s farm.Service, list []farm.ResourcePermission) ([]farm.ResourcePermission, error) {
	if len(list) > MaxGroupResources {
		return nil, farm.Refused("limit of resource rights of one permission group (%d) reached", MaxGroupResources)
	}
	out := make([]farm.ResourcePermission, 0, len(list))
	seen := map[resource]bool{}
	for _, r := range list {
		if r.IDType == "" {
			r.IDType = defaultIDType
		}
		at := resource{r.Type, r.ID}
		switch {
		case r.ID == "" || len(r.ID) > maxResourceID || !isPrintable(r.ID):
			return nil, farm.Invalid(resourceIDField, "must be the ID of a resource, of 1 to %d bytes", maxResourceID)
		case r.IDType != defaultIDType:
			return nil, farm.Invalid("id_type", "must be %s", defaultIDType)
		case !slices.Contains(farm.ResourceTypes(s), r.Type):
			return nil, farm.Invalid("type", "unknown resource type: at the %s want one of %v", s,
				farm.ResourceTypes(s))
		case seen[at]:
			return nil, farm.Invalid(resourceIDField, "resource %s occurs twice", r.ID)
		}
		seen[at] = true
		for _, p := range r.Permissions {
			if !containsPermission(farm.ResourcePermissions(r.Type), p) {
				return nil, farm.Invalid(permissionsField, "unknown permission %.100q on a %s", p, r.Type)
			}
		}
		r.Permissions = distinct(r.Permissions)
		out = append(out, r)
	}
	return out, nil
}

func containsPermission(list []farm.PermissionInfo, p farm.Permission) bool {
	return slices.ContainsFunc(list, func(i farm.PermissionInfo) bool { return i.Name == p })
}

// withKey returns a copy of a map in which a key has a value.
func withKey[V any](m map[string]V, key string, v V) map[string]V {
	out := make(map[string]V, len(m)+1)
	maps.Copy(out, m)
	out[key] = v
	return out
}

// withoutKey returns a copy of a map without a key.
func withoutKey[V any](m map[string]V, key string) map[string]V {
	out := maps.Clone(m)
	delete(out, key)
	return out
}
