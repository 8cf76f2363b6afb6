// Package auth says who is calling and whether they may: the root token, user keys, the
// handshake that turns a key into a session, signed sessions, and permission rules.
//
// It is not a protocol: routes, envelopes and TLS are elsewhere, and so are the stores; it
// asks them through KeyStore and Marks. Certificates and identity providers have packages
// of their own, which an Authenticator is given as functions.
//
// Invariant: what cannot be verified is refused, each reason alike to the caller, and no
// secret ever gets into an error, a log or a printed value.
package auth
