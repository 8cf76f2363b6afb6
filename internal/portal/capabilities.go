package portal

import (
	"slices"

	"github.com/buildyard/buildyard/api"
)

// capabilities is what the visitor may do, as far as that is known before an attempt. The API
// authorizes in any case.
type capabilities struct {
	rights             *api.Rights // nil: everything, or it could not be asked
	lackingPermissions []string    // permissions that something on the page needs
}

// actionLink is something that a page offers to do.
type actionLink struct {
	Path, Name           string
	Label                string // where the name alone is ambiguous
	Class                string
	Dialog               bool   // its form is shown over the page
	DeniedReason         string // which permission is missing
	controllerPermission string // of the controller; "root": it is root's own
	nodeRight            string // right on the node that it is about
	registryPermission   string // permission of the registry
	templateRight        string // right on the template that it is about
	permissions          []string
}

// actionLinks are what can be done from a page, by the words that templates use.
var actionLinks = map[string]actionLink{
	"see nodes":     {controllerPermission: "list_nodes"},
	"see instances": {controllerPermission: "list_vms"},
	"see groups":    {controllerPermission: "get_groups"},
	"see usage":     {controllerPermission: "view_logs"},
	"add node":      {controllerPermission: "change_node_config", Class: "p"},
	"start":         {controllerPermission: "start_vm", Class: "p"},
	"restart":       {controllerPermission: "start_vm"},
	"start row":     {controllerPermission: "start_vm"},
	"end":           {controllerPermission: "terminate_vm", Class: "d", Dialog: true},
	"edit node":     {controllerPermission: "change_node_config", nodeRight: "change_config", Dialog: true},
	"edit row":      {controllerPermission: "change_node_config", nodeRight: "change_config", Dialog: true},
	"group node": {
		permissions: []string{"add_node_to_group", "remove_group_from_node"}, nodeRight: "change_config",
		Dialog: true,
	},
	"drain":          {controllerPermission: "change_node_config", nodeRight: "change_config", Dialog: true},
	"update":         {controllerPermission: "change_node_config", nodeRight: "force_upgrade", Dialog: true},
	"delete node":    {controllerPermission: "delete_node", nodeRight: "remove", Class: "d", Dialog: true},
	"distribute":     {controllerPermission: "registry_distribute", Class: "p", Dialog: true},
	"distribute tag": {controllerPermission: "registry_distribute", Dialog: true},
	"cancel":         {controllerPermission: "registry_distribute", Dialog: true},
	"cancel all":     {controllerPermission: "registry_distribute", Class: "d", Dialog: true},
	"revert": {
		controllerPermission: "registry_delete", registryPermission: "revert", templateRight: "delete_revert",
		Class:  "d",
		Dialog: true,
	},
	"delete template": {
		controllerPermission: "registry_delete", registryPermission: "delete_vm", templateRight: "delete_revert",
		Class:  "d",
		Dialog: true,
	},
	"remove":        {controllerPermission: "registry_delete", Dialog: true},
	"create group":  {controllerPermission: "create_group", Class: "p", Dialog: true},
	"edit group":    {controllerPermission: "update_group", Dialog: true},
	"delete group":  {controllerPermission: "delete_group", Class: "d", Dialog: true},
	"create pool":   {controllerPermission: "change_config", Class: "p", Dialog: true},
	"edit pool":     {controllerPermission: "change_config", Dialog: true},
	"delete pool":   {controllerPermission: "change_config", Class: "d", Dialog: true},
	"make key":      {controllerPermission: "root", Class: "p", Dialog: true},
	"grant":         {controllerPermission: "update_permission_groups", Class: "p"},
	"forget grants": {controllerPermission: "delete_permission_groups", Class: "d", Dialog: true},
}

// canDo returns what the visitor may do with what the page is about. It is read once.
func (v *visit) canDo() *capabilities {
	if v.capabilities != nil {
		return v.capabilities
	}
	v.capabilities = &capabilities{}
	if v.loginRequired {
		rights, err := v.Rights(v, v.rightsQuery)
		if err == nil { // else it is tried, and the API names what is missing
			v.capabilities.rights = &rights
		}
	}
	return v.capabilities
}

// Link offers an action: its path, the text of the button, and an optional label for users of screen
// readers, who do not see its context. on is the node that it concerns.
func (m *capabilities) Link(what, on, path, name string, label ...string) actionLink {
	a := actionLinks[what]
	a.Path, a.Name, a.DeniedReason = path, name, m.DeniedReason(what, on)
	if len(label) > 0 {
		a.Label = label[0]
	}
	return a
}

// newActionLink is Do for actions whose permission the page has already checked.
func newActionLink(denied, path, name, class string, label ...string) actionLink {
	a := actionLink{Path: path, Name: name, Class: class, DeniedReason: denied, Dialog: class == "d"}
	if len(label) > 0 {
		a.Label = label[0]
	}
	return a
}

// DeniedReason returns which permission is missing for something, as the API does; "" where none is.
func (m *capabilities) DeniedReason(what, on string) string {
	a := actionLinks[what]
	if m == nil || m.rights == nil || m.rights.Root {
		return ""
	}
	for _, p := range append(a.permissions, a.controllerPermission) {
		if p == "root" {
			return m.addLacking("root", "Only the root user may do this")
		}
		if p != "" && !slices.Contains(m.rights.Permissions, p) {
			return m.addLacking(p, "You need the permission "+p)
		}
	}
	if a.nodeRight != "" && on != "" && m.rights.Managed && !slices.Contains(m.rights.Nodes[on], a.nodeRight) {
		return m.addLacking(a.nodeRight+" on the node", "You need the permission "+a.nodeRight+" on the node "+on)
	}
	if shelf := m.rights.Registry; shelf != nil {
		if a.registryPermission != "" && !shelf.Allows(a.registryPermission) {
			return m.addLacking(a.registryPermission+" at the registry",
				"You need the permission "+a.registryPermission+" at the registry")
		}
		if a.templateRight != "" && on != "" && !shelf.On(on, a.templateRight) {
			return m.addLacking(a.templateRight+" on the template",
				"You need the permission "+a.templateRight+" on the template "+
					on)
		}
	}
	return ""
}

func (m *capabilities) addLacking(what, sentence string) string {
	if what != "root" && !slices.Contains(m.lackingPermissions, what) {
		m.lackingPermissions = append(m.lackingPermissions, what)
	}
	return sentence
}

// Lacking are the permissions that something on the page needs, as far as it was made.
func (m *capabilities) Lacking() []string {
	if m == nil {
		return nil
	}
	return m.lackingPermissions
}

// managed reports whether resource rights on nodes and templates are enforced.
func (m *capabilities) managed() bool { return m.rights != nil && m.rights.Managed }

// seesSomeOnly reports whether the visitor sees only those nodes and templates that they were granted rights on.
func (m *capabilities) seesSomeOnly() bool { return m.managed() && !m.rights.Root }

// isLimited reports whether some records are not for the visitor: at least API keys, which only root sees.
func (m *capabilities) isLimited() bool { return m.rights != nil && !m.rights.Root }

// actingGroups are the permission groups as which the visitor can start and distribute.
func (m *capabilities) actingGroups() []string {
	if !m.managed() {
		return nil
	}
	return m.rights.Groups
}

// deniedByAll returns the reason why no service lets the visitor do something; "": at least one does.
func (v *visit) deniedByAll(what string) string {
	denied := v.canDo().DeniedReason(what, "")
	if denied == "" || v.registry == nil {
		return denied
	}
	if there, err := v.registry.Rights(v, ""); err == nil && there.Allows(actionLinks[what].controllerPermission) {
		v.canDo().lackingPermissions = nil
		return ""
	}
	return denied
}
