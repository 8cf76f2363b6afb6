// Package archtest has the rules of this repository as tests: which packages may import which
// others, what package comments must contain, the limits of lengths, and banned words. Each rule
// states its reason, and a new exception needs one, too.
//
// It is not a linter and has no product code: whatever an existing linter checks is left to that.
// It only reads source text, for all systems together, and never type-checks, so it stays fast as
// the tree grows.
//
// Invariant: every rule also runs on a small tree that violates it, so that no rule can pass
// without checking anything.
package archtest
