// Package vercmp compares versions as those do who publish them: Semantic Versioning for
// Go, npm and crates, PEP 440, RubyGems, Maven, Homebrew with its revisions, and the loose
// numbers that NVD writes.
//
// It is not what decides who is affected: internal/scan/match does, with these orders. It
// knows no ranges and no packages, and imports nothing of the project, so that those who
// write ranges can use it too.
//
// Invariant: a text that a scheme does not admit is an error, never a version that is
// somewhere in the order, and what a comparison costs is bounded by MaxLength.
package vercmp
