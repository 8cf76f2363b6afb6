// Package authrest holds the routes of authentication, which both services have from one table:
// handshakes, user keys, permission groups and rights on single resources, and the log-in of
// browsers.
//
// It decides nothing: internal/auth says who somebody is and what may be stored, and rest.Guard
// who may use these routes.
//
// Invariant: no answer, log or error has a secret in it but the one answer for which the secret
// was made.
package authrest
