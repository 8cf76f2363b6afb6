// Package registrymirror serves the pulls of a site: it stores the layer files that nodes request from a registry, the
// origin, and serves them again without it.
//
// It is not a registry: pushes, lists and everything else go to the origin. It has no credentials and no list of
// permissions either: the origin decides about every layer with the credential of the caller.
//
// Invariant: a layer is sent only to a caller whom the origin has permitted to download it within PermitTime, or
// within StalePermitTime while the origin cannot be reached; and a stored file has its final name only after every
// frame in it was verified.
package registrymirror
