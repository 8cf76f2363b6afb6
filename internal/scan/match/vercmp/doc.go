// Package vercmp compares versions by the rules of their publishers: Semantic Versioning for Go,
// npm and crates, PEP 440, RubyGems, Maven, Homebrew with its revisions, dpkg, rpm and apk, and the
// loose versions in NVD.
//
// It does not decide what is affected: internal/scan/match does, with these orders. It knows no
// ranges and no packages, and imports no other package of the project, so that the code that writes
// ranges can use it too.
//
// Invariant: a text that is invalid in a scheme is an error, never a version with an arbitrary
// order, and MaxVersionBytes bounds the cost of a comparison.
package vercmp
