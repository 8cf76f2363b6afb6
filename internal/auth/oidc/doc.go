// Package oidc authenticates users and CI systems of an identity provider (OpenID Connect): people
// who log in with a browser (authorization code with PKCE), and programs that present a JWT of the
// provider as their Bearer value.
//
// It stores no sessions and decides nothing about permissions: it returns a name and groups, as
// they are in the provider's claims. It has no routes.
//
// Invariant: everything that it returns about a caller was signed by the provider, for this client,
// and has not expired. While the provider is unavailable no one can log in, and everything else
// works.
package oidc
