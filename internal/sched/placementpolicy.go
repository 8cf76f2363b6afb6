package sched

import "strings"

// permit begins the ids of the groups of nodes that permission groups are to the index. Ids of
// node groups are UUIDs.
const permit = "permit:"

// PolicyGroup returns the id of the group of all nodes on which a permission group may start instances.
// Nodes are in it, and requests ask for it, as with any other group; only reasons call it
// otherwise.
func PolicyGroup(group string) string { return permit + group }

// permitted returns the permission group whose nodes a demand asks for.
func (d constraints) permitted() (group string, ok bool) { return strings.CutPrefix(d.group, permit) }

// outside says of a node that it is not in the group of the demand, whose name is given.
func (d constraints) outside(name string) string {
	if group, ok := d.permitted(); ok {
		return "is not open to the permission group " + group
	}
	return "is not in group " + name
}

// nowhere says that no node is in the group.
func (d constraints) nowhere(name string) string {
	if group, ok := d.permitted(); ok {
		return "there is no node on which the permission group " + group + " may start instances"
	}
	return "group " + name + " has no nodes"
}

// among begins a sentence about the nodes of the group.
func (d constraints) among(name string) string {
	if group, ok := d.permitted(); ok {
		return "no node that is open to the permission group " + group
	}
	return "no node of group " + name
}
