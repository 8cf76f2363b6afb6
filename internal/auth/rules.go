package auth

import (
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// Policy is the part of settings and license that concerns permissions.
type Policy struct {
	Service       farm.Service
	Tier          farm.Tier
	Authorization bool // permissions are asked for
	Resources     bool // rights on single nodes or templates are asked for too
}

// Enforces reports whether permissions are enforced: they are switched on, and the tier includes
// them or did before. So an expired license grants nothing.
func (p Policy) Enforces(g Grants) bool {
	return p.Authorization && (g.Enforced || p.Tier.Covers(farm.TierEnterprisePlus))
}

// Latch returns the grants with what has to be stored of the policy: that permissions were
// enforced, until they are switched off. changed reports that this has to be stored.
func (p Policy) Latch(g Grants) (latched Grants, changed bool) {
	was := g.Enforced
	g.Enforced = p.Enforces(g)
	return g, g.Enforced != was
}

// resource is one node or template.
type resource struct {
	kind farm.ResourceType
	id   string
}

// newResource names a resource: ids are UUIDs, which mean the same in either case.
func newResource(kind farm.ResourceType, id string) resource {
	return resource{kind, strings.ToLower(id)}
}

// bitset is a set of permissions of one service, or of rights on one type of resources.
type bitset uint64

// Rules are a policy and grants, made ready for fast answers. They are never changed.
type Rules struct {
	service          farm.Service
	enforced         bool
	resourcesManaged bool
	permissionBits   map[farm.Permission]bitset // each has one bit
	rightBits        map[farm.ResourceType]map[farm.Permission]bitset
	groupPermissions map[string]bitset // permission group -> permissions
	groupRights      map[string]map[resource]bitset
}

// NewRules makes rules.
func NewRules(p Policy, g Grants) *Rules {
	r := &Rules{
		service:          p.Service,
		enforced:         p.Enforces(g),
		permissionBits:   assignBits(farm.AllPermissions(p.Service)),
		rightBits:        map[farm.ResourceType]map[farm.Permission]bitset{},
		groupPermissions: map[string]bitset{}, groupRights: map[string]map[resource]bitset{},
	}
	r.resourcesManaged = r.enforced && p.Resources
	for name, list := range g.Groups {
		r.groupPermissions[name] = unionBits(r.permissionBits, list)
	}
	for _, kind := range farm.ResourceTypes(p.Service) {
		r.rightBits[kind] = assignBits(farm.ResourcePermissions(kind))
	}
	for name, list := range g.Resources {
		at := make(map[resource]bitset, len(list))
		for _, res := range list {
			at[newResource(res.Type, res.ID)] |= unionBits(r.rightBits[res.Type], res.Permissions)
		}
		r.groupRights[name] = at
	}
	return r
}

func assignBits(list []farm.PermissionInfo) map[farm.Permission]bitset {
	out := make(map[farm.Permission]bitset, len(list))
	for i, p := range list {
		out[p.Name] = 1 << i
	}
	return out
}

func unionBits(known map[farm.Permission]bitset, list []farm.Permission) (all bitset) {
	for _, p := range list {
		all |= known[p]
	}
	return all
}

// Allows reports whether a caller has a permission. Root has all. A node has those that its orders
// need, also where permissions are not enforced, and one that joined with a key only those that the
// key has too. Others have what their name or one of their groups was granted, and everything where
// permissions are not enforced. Unknown permissions are denied.
func (r *Rules) Allows(who Identity, p farm.Permission) bool {
	if who.Root {
		return true
	}
	bit := r.permissionBits[p] // 0, which no caller has, for root's own permissions and for unknown ones
	switch {
	case bit == 0 || who.Method == "":
		return false
	case who.Method == ByNode:
		return who.Scope.Includes(p) && r.KeyAllows(who, p)
	case who.Method == ByLocal && who.Name == "":
		return true
	}
	return !r.enforced || r.has(who.Name, who.Groups, bit)
}

// KeyAllows reports whether the API key that a node has joined with permits it to use a permission.
// It grants nothing.
func (r *Rules) KeyAllows(who Identity, p farm.Permission) bool {
	return !r.enforced || who.KeyID == "" || r.has(who.KeyID, who.Groups, r.permissionBits[p])
}

func (r *Rules) has(name string, groups []string, bit bitset) bool {
	if r.groupPermissions[name]&bit != 0 {
		return true
	}
	for _, g := range groups {
		if r.groupPermissions[g]&bit != 0 {
			return true
		}
	}
	return false
}

// AllowsOn reports whether a caller has a right on one resource. It comes after Allows, which
// checks the permission as such. A node may pull what it was ordered to cache; what it saves is
// authorized as a push.
func (r *Rules) AllowsOn(who Identity, kind farm.ResourceType, id string, p farm.Permission) bool {
	if who.Root {
		return true
	}
	bit := r.rightBits[kind][p]
	switch {
	case bit == 0 || who.Method == "":
		return false
	case who.Method == ByNode:
		return p == pullRight && who.Scope.MayPull(id)
	case !r.resourcesManaged, who.Method == ByLocal && who.Name == "":
		return true
	}
	at := newResource(kind, id)
	if r.groupRights[who.Name][at]&bit != 0 {
		return true
	}
	for _, g := range who.Groups {
		if r.groupRights[g][at]&bit != 0 {
			return true
		}
	}
	return false
}

// pullRight is the right to pull a template; no other resource has one of this name.
const pullRight farm.Permission = "pull"

// Enforced reports whether permissions are enforced.
func (r *Rules) Enforced() bool { return r.enforced }

// Service returns the service to which the rules apply.
func (r *Rules) Service() farm.Service { return r.service }

// Managed reports whether resource rights are enforced.
func (r *Rules) Managed() bool { return r.resourcesManaged }

// MayActFor reports whether a caller may act for a permission group: as a member, or because they
// have everything.
func (i Identity) MayActFor(group string) bool {
	return group != "" &&
		(i.Root || i.Name == group || i.Method == ByLocal && i.Name == "" || slices.Contains(i.Groups, group))
}

// GroupAllowsOn reports whether one permission group has a right on a resource, for requests that
// name the group for which they are made. It is true where resource rights are not enforced.
func (r *Rules) GroupAllowsOn(group string, kind farm.ResourceType, id string, p farm.Permission) bool {
	bit := r.rightBits[kind][p]
	return bit != 0 && (!r.resourcesManaged || r.groupRights[group][newResource(kind, id)]&bit != 0)
}

// Holders returns the permission groups that have a right, by the id of the resource on which they
// have it, each list sorted. It takes time for each right that was granted.
func (r *Rules) Holders(kind farm.ResourceType, p farm.Permission) map[string][]string {
	bit, out := r.rightBits[kind][p], map[string][]string{}
	for group, rights := range r.groupRights {
		for at, has := range rights {
			if at.kind == kind && has&bit != 0 {
				out[at.id] = append(out[at.id], group)
			}
		}
	}
	for _, groups := range out {
		slices.Sort(groups)
	}
	return out
}

// Forbidden is the refusal of a caller without a permission.
func Forbidden(p farm.Permission) error {
	if p == farm.PermRoot {
		return farm.Errorf(farm.CodeForbidden, "Only the root user may do this")
	}
	return farm.Errorf(farm.CodeForbidden, "You need the permission %s", p)
}

// ForbiddenToNodes is the refusal of a node whose request belongs to no order.
func ForbiddenToNodes(p farm.Permission) error {
	if p == farm.PermRoot {
		return Forbidden(p)
	}
	return farm.Errorf(farm.CodeForbidden, "Permission %s required, which registry tokens do not have for this request",
		p)
}

// ForbiddenOn is the refusal of a caller without a right on a resource.
func ForbiddenOn(kind farm.ResourceType, id string, p farm.Permission) error {
	return farm.Errorf(farm.CodeForbidden, "You need the permission %s on the %s %s", p, kind, id)
}
