package portal

import (
	"slices"

	"github.com/buildyard/buildyard/api"
)

// capabilities is what the visitor may do, as far as that is known before an attempt. The API
// authorizes in any case.
type capabilities struct {
	rights *api.Rights // nil: everything, or it could not be asked
	lacks  []string    // permissions that something on the page needs
}

// actionLink is something that a page offers to do.
type actionLink struct {
	Path, Name  string
	Label       string // where the name alone is ambiguous
	Class       string
	Dialog      bool   // its form is shown over the page
	Not         string // which permission is missing
	permission  string // of the controller; "root": it is root's own
	onNode      string // right on the node that it is about
	shelf       string // permission of the registry
	onTemplate  string // right on the template that it is about
	permissions []string
}

// acts are what can be done from a page, by the words that templates use.
var acts = map[string]actionLink{
	"see nodes": {permission: "list_nodes"},
	"start":     {permission: "start_vm", Class: "p"},
	"end":       {permission: "terminate_vm", Class: "d", Dialog: true},
	"edit node": {permission: "change_node_config", onNode: "change_config", Dialog: true},
	"edit row":  {permission: "change_node_config", onNode: "change_config", Dialog: true},
	"group node": {
		permissions: []string{"add_node_to_group", "remove_group_from_node"}, onNode: "change_config",
		Dialog: true,
	},
	"drain":          {permission: "change_node_config", onNode: "change_config", Dialog: true},
	"update":         {permission: "change_node_config", onNode: "force_upgrade", Dialog: true},
	"delete node":    {permission: "delete_node", onNode: "remove", Class: "d", Dialog: true},
	"distribute":     {permission: "registry_distribute", Class: "p", Dialog: true},
	"distribute tag": {permission: "registry_distribute", Dialog: true},
	"cancel":         {permission: "registry_distribute", Dialog: true},
	"cancel all":     {permission: "registry_distribute", Class: "d", Dialog: true},
	"revert": {
		permission: "registry_delete", shelf: "revert", onTemplate: "delete_revert", Class: "d",
		Dialog: true,
	},
	"delete template": {
		permission: "registry_delete", shelf: "delete_vm", onTemplate: "delete_revert", Class: "d",
		Dialog: true,
	},
	"remove":        {permission: "registry_delete", Dialog: true},
	"create group":  {permission: "create_group", Class: "p", Dialog: true},
	"edit group":    {permission: "update_group", Dialog: true},
	"delete group":  {permission: "delete_group", Class: "d", Dialog: true},
	"make key":      {permission: "root", Class: "p", Dialog: true},
	"grant":         {permission: "update_permission_groups", Class: "p"},
	"forget grants": {permission: "delete_permission_groups", Class: "d", Dialog: true},
}

// can returns what the visitor may do with what the page is about. It is read once.
func (v *visit) can() *capabilities {
	if v.mine != nil {
		return v.mine
	}
	v.mine = &capabilities{}
	if v.guarded {
		rights, err := v.Rights(v, v.about)
		if err == nil { // else it is tried, and the API names what is missing
			v.mine.rights = &rights
		}
	}
	return v.mine
}

// Do offers an action: its path, the text of the button, and an optional label for users of screen
// readers, who do not see its context. on is the node that it concerns.
func (m *capabilities) Do(what, on, path, name string, label ...string) actionLink {
	a := acts[what]
	a.Path, a.Name, a.Not = path, name, m.Not(what, on)
	if len(label) > 0 {
		a.Label = label[0]
	}
	return a
}

// offer is Do for actions whose permission the page has already checked.
func offer(not, path, name, class string, label ...string) actionLink {
	a := actionLink{Path: path, Name: name, Class: class, Not: not, Dialog: class == "d"}
	if len(label) > 0 {
		a.Label = label[0]
	}
	return a
}

// Not returns which permission is missing for something, as the API does; "" where none is.
func (m *capabilities) Not(what, on string) string {
	a := acts[what]
	if m == nil || m.rights == nil || m.rights.Root {
		return ""
	}
	for _, p := range append(a.permissions, a.permission) {
		if p == "root" {
			return m.lack("root", "Only the root user may do this")
		}
		if p != "" && !slices.Contains(m.rights.Permissions, p) {
			return m.lack(p, "You need the permission "+p)
		}
	}
	if a.onNode != "" && on != "" && m.rights.Managed && !slices.Contains(m.rights.Nodes[on], a.onNode) {
		return m.lack(a.onNode+" on the node", "You need the permission "+a.onNode+" on the node "+on)
	}
	if shelf := m.rights.Registry; shelf != nil {
		if a.shelf != "" && !shelf.Allows(a.shelf) {
			return m.lack(a.shelf+" at the registry", "You need the permission "+a.shelf+" at the registry")
		}
		if a.onTemplate != "" && on != "" && !shelf.On(on, a.onTemplate) {
			return m.lack(a.onTemplate+" on the template", "You need the permission "+a.onTemplate+" on the template "+
				on)
		}
	}
	return ""
}

func (m *capabilities) lack(what, sentence string) string {
	if what != "root" && !slices.Contains(m.lacks, what) {
		m.lacks = append(m.lacks, what)
	}
	return sentence
}

// Lacking are the permissions that something on the page needs, as far as it was made.
func (m *capabilities) Lacking() []string {
	if m == nil {
		return nil
	}
	return m.lacks
}

// managed reports whether resource rights on nodes and templates are enforced.
func (m *capabilities) managed() bool { return m.rights != nil && m.rights.Managed }

// actingGroups are the permission groups as which the visitor can start and distribute.
func (m *capabilities) actingGroups() []string {
	if !m.managed() {
		return nil
	}
	return m.rights.Groups
}

// anywhere returns an act that one of the services may let the visitor do, each with its own.
func (v *visit) anywhere(what string) string {
	not := v.can().Not(what, "")
	if not == "" || v.registry == nil {
		return not
	}
	if there, err := v.registry.Rights(v, ""); err == nil && there.Allows(acts[what].permission) {
		v.can().lacks = nil
		return ""
	}
	return not
}
