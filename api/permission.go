package api

import "time"

// Permission is a right to use some routes of a service.
type Permission struct {
	Name        string `json:"name"`
	Area        string `json:"area"`  // heading under which it is listed
	Label       string `json:"label"` // short name for people
	Description string `json:"description"`
}

// PermissionGroup is the permissions of a group or a user: name is that of a group of users, of a user, or the
// ID of a key.
type PermissionGroup struct {
	Name        string   `json:"name"`
	Permissions []string `json:"permissions"` // names of its permissions
}

// Rights is the permissions of a caller (GET /api/v1/rights).
type Rights struct {
	// User is the name of the caller: of a user, or the ID of an API key; absent where callers need not log in.
	User string `json:"user,omitempty"`
	// Credential is how the caller has authenticated: root, key, certificate, oidc, node or local.
	Credential string `json:"credential,omitempty"`

	// Expires is when the log-in of the browser ends; nil: it is not known, or the caller is a program.
	Expires *time.Time `json:"expires,omitempty"`

	Root bool `json:"root"` // the caller may do everything
	// Enforced reports that permissions are enforced, Managed that rights on single nodes and templates are.
	Enforced bool `json:"enforced"` // permissions are enforced at all
	Managed  bool `json:"managed"`  // rights on single nodes and templates are enforced
	// Groups are the permission groups as which the caller may act.
	Groups []string `json:"groups"`
	// Permissions are those of the controller that the caller has.
	Permissions []string `json:"permissions"`
	// Nodes maps the ID of each requested node to the rights that the caller has on it. It is empty where such
	// rights do not apply.
	Nodes map[string][]string `json:"nodes"`
	// Registry is the caller's rights at the registry on the requested template; nil: everything, or none was
	// requested.
	Registry *CallerRights `json:"registry,omitempty"`
}

// LoginProvider is what clients discover a log-in with the identity provider by.
type LoginProvider struct {
	UserNameField string `json:"user_name_field"` // claim with the user's name
	GroupsField   string `json:"groups_field"`    // claim with the user's groups
	ProviderURL   string `json:"provider_url"`    // address of the OIDC issuer
}

// AuthConfig describes how a user can log in; without an identity provider it is empty.
type AuthConfig struct {
	OIDC *LoginProvider `json:"oidc,omitempty"`
}
