// Package auth authenticates and authorizes callers: the root token, API keys, the handshake that
// turns a key into a session, signed sessions, and permission rules.
//
// It is not a protocol: routes, envelopes and TLS are elsewhere, and so are the stores; it uses
// them through KeyStore, NonceStore and GrantStore. Certificates and identity providers have
// separate packages, which an Authenticator gets as functions.
//
// Invariant: what cannot be verified is refused, for every reason with the same answer, and no
// secret ever gets into an error, a log or a printed value.
package auth
