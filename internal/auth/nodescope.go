package auth

import (
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// NodeScope is what a registry token permits: what the controller had ordered from the node when it
// made the token. The zero value permits nothing. It is immutable.
type NodeScope struct {
	PullTemplates []string     `json:"p,omitempty"` // ids of templates that the node may pull
	Saves         []SaveScope  `json:"s,omitempty"` // saves that are under way on the node
	LogInstances  []string     `json:"l,omitempty"` // ids of instances whose failure logs it may upload
	LogRows       *LogRowScope `json:"r,omitempty"` // whose rows it may append to the central logs; nil: none
	// Orders reports that the token was made for all orders of the node together, for an agent that
	// cannot name a purpose. Such an agent requests another token when it receives status 401.
	Orders bool `json:"o,omitempty"`
}

// SaveScope is one save: a push of one tag into one template.
type SaveScope struct {
	ID             string  `json:"i"`           // of the save request, which is the resume key of the push
	TemplateID     string  `json:"t"`           // id of the template that gets the tag
	Name           string  `json:"n,omitempty"` // the template is created, with this name; "": it must exist
	Tag            string  `json:"g"`
	RevertTag      *string `json:"v,omitempty"` // tag that is reverted in the same commit, "" for the latest; nil: none
	BaseTemplateID string  `json:"b"`           // id of the template that the saved instance was started from
}

// LogRowScope is the origin that the rows have which a node appends to the central logs.
type LogRowScope struct {
	Machine string `json:"m"`
	Host    string `json:"h"`
}

// NodeService is the service under which the central logs have what nodes send.
const NodeService = "node"

// scopePermissions are the permissions of the registry that a scope can grant, each with its
// condition. `revert` is not one of them: a save that reverts is authorized as a push.
var scopePermissions = map[farm.Permission]func(NodeScope) bool{
	// a save looks whether its tag is there
	"pull_vm":      func(s NodeScope) bool { return len(s.PullTemplates)+len(s.Saves) > 0 },
	"download_vm":  func(s NodeScope) bool { return len(s.PullTemplates) > 0 },
	"head_push_vm": func(s NodeScope) bool { return len(s.Saves) > 0 },
	"push_vm":      func(s NodeScope) bool { return len(s.Saves) > 0 },
	"upload_file":  func(s NodeScope) bool { return len(s.LogInstances) > 0 },
	"send_log":     func(s NodeScope) bool { return s.LogRows != nil },
}

// Includes reports whether the scope has any use for a permission of the registry.
func (s NodeScope) Includes(p farm.Permission) bool {
	uses, ok := scopePermissions[p]
	return ok && uses(s)
}

// MayPull reports whether the node may pull a template.
func (s NodeScope) MayPull(template string) bool {
	return slices.ContainsFunc(s.PullTemplates, func(id string) bool { return strings.EqualFold(id, template) })
}

// FindSave returns the save with an id.
func (s NodeScope) FindSave(id string) (SaveScope, bool) {
	i := slices.IndexFunc(s.Saves, func(save SaveScope) bool { return save.ID == id && id != "" })
	if i < 0 {
		return SaveScope{}, false
	}
	return s.Saves[i], true
}

// MayLookUp reports whether the node may look up the tag of one of its saves.
func (s NodeScope) MayLookUp(template, tag string) bool {
	return slices.ContainsFunc(s.Saves, func(save SaveScope) bool {
		return strings.EqualFold(save.TemplateID, template) && save.Tag == tag && tag != ""
	})
}

// MayUpload reports whether the node may store a file of the registry's file server: a failure log of one of
// its instances, directly below logs/<instance id>/.
func (s NodeScope) MayUpload(path string) bool {
	parts := strings.Split(path, "/")
	return len(parts) == 3 && parts[0] == "logs" && parts[2] != "" && slices.Contains(s.LogInstances, parts[1])
}

// Reverts reports whether the save reverts a tag.
func (s SaveScope) Reverts() bool { return s.RevertTag != nil }

// MissingOrder is the refusal of a node without an order for its request: what describes that, as
// "push the tag v2 of the template X". An agent that cannot name a purpose receives status 401,
// upon which it requests a token with its current orders.
func (i Identity) MissingOrder(p farm.Permission, what string) error {
	if i.Scope.Orders && scopePermissions[p] != nil {
		return errStaleOrders
	}
	return farm.Errorf(farm.CodeForbidden, "Permission %s requires an order: this node has no order to %s", p, what)
}

var errStaleOrders = deniedError("the registry token is older than the order, or the node has no such order")
