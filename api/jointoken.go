package api

import "time"

// PathJoinTokens is the route of the join tokens.
const PathJoinTokens = "/api/v1/node/token" //nolint:gosec // a path

// JoinToken is a secret with which machines become nodes: an element of GET PathJoinTokens.
type JoinToken struct {
	ID          string    `json:"id"`
	Description string    `json:"description,omitempty"`
	Created     time.Time `json:"created"`
	CreatedBy   string    `json:"created_by,omitempty"` // name of the caller who created it
	Expires     time.Time `json:"expires,omitzero"`     // absent: it does not expire
	Once        bool      `json:"once"`                 // it registers one node
	Permanent   bool      `json:"permanent"`            // it does not expire; there is one
	// Token is the secret. Only the response to the request that created the token contains it.
	Token string `json:"token,omitempty"`
}

// CreateJoinToken is the body of POST PathJoinTokens.
type CreateJoinToken struct {
	TTL         string `json:"ttl,omitempty"`     // lifetime, for example 24h; "": it does not expire
	Once        bool   `json:"once,omitempty"`    // it registers one node
	Replace     bool   `json:"replace,omitempty"` // create the permanent token again: the former one becomes invalid
	Description string `json:"description,omitempty"`
}
