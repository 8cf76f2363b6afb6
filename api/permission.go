package api

// Permission is a right to use some routes of a service.
type Permission struct {
	Name        string `json:"name"`
	Area        string `json:"area"` // heading under which it is shown
	Label       string `json:"label"`
	Description string `json:"description"`
}

// PermissionGroup is what the members of a group, or a user, may do: name is that of a group of
// users, of a user, or the id of a key.
type PermissionGroup struct {
	Name        string   `json:"name"`
	Permissions []string `json:"permissions"`
}

// LoginProvider is what clients discover a log-in with the identity provider by.
type LoginProvider struct {
	UserNameField string `json:"user_name_field"`
	GroupsField   string `json:"groups_field"`
	ProviderURL   string `json:"provider_url"`
}

// AuthConfig says how one can log in; without an identity provider it is empty.
type AuthConfig struct {
	OIDC *LoginProvider `json:"oidc,omitempty"`
}
