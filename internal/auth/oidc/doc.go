// Package oidc lets users and CI systems in whom an identity provider (OpenID Connect) vouches
// for: people who log in with a browser (authorization code with PKCE), and programs that bring
// a JWT of the provider as their Bearer value.
//
// It keeps no sessions and decides nothing about permissions: it hands over a name and groups,
// as the provider's claims have them. It has no routes of its own.
//
// Invariant: whatever it says of a caller, the provider has signed, for this client, and it has
// not expired. A provider that cannot be reached lets nobody in, and stops nothing else.
package oidc
