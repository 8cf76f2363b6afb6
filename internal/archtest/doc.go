// Package archtest holds the rules of the house as tests: who may import whom,
// what every package says of itself, how long things may be, and which words stay
// out. Each rule carries its reason, and a new exception needs one too.
//
// It is not a linter and has no product code: whatever an existing linter checks
// is left to that. It reads source text only, for every system at once, and never
// type-checks, so it stays fast while the tree grows.
//
// Invariant: every rule is also run on a small tree that breaks it, so that no
// rule can pass by never looking.
package archtest
