// Package authrest implements the authentication routes that both services share in one table: handshakes, user
// keys, permission groups, rights on single resources, and the login of browsers.
//
// It decides nothing: internal/auth authenticates callers and validates what is stored, and rest.Guard
// authorizes the use of these routes.
//
// Invariant: no response, log or error contains a secret except the one response for which the secret was made.
package authrest
