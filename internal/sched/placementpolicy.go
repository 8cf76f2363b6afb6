package sched

import "strings"

// policyGroupPrefix begins the IDs of the node groups that represent permission groups in the index. IDs of
// other node groups are UUIDs.
const policyGroupPrefix = "permit:"

// PolicyGroup returns the ID of the group of all nodes on which a permission group may start
// instances. Nodes belong to it, and requests name it, as with any other group; only reasons
// describe it differently.
func PolicyGroup(group string) string { return policyGroupPrefix + group }

// permissionGroup returns the permission group whose nodes the constraints require.
func (d constraints) permissionGroup() (group string, ok bool) {
	return strings.CutPrefix(d.group, policyGroupPrefix)
}

// outsideText describes a node outside the group of the constraints, whose name is given.
func (d constraints) outsideText(name string) string {
	if group, ok := d.permissionGroup(); ok {
		return "is not open to the permission group " + group
	}
	return "is not in group " + name
}

// noNodeText describes that no node is in the group.
func (d constraints) noNodeText(name string) string {
	if group, ok := d.permissionGroup(); ok {
		return "no node is open to the permission group " + group
	}
	return "group " + name + " has no nodes"
}

// amongText begins a sentence about the nodes of the group.
func (d constraints) amongText(name string) string {
	if group, ok := d.permissionGroup(); ok {
		return "no node that is open to the permission group " + group
	}
	return "no node of group " + name
}
