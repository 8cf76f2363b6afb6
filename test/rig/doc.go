// Package rig builds the real programs of this repository and runs small clouds of them on loopback
// addresses, for the tests that need whole processes.
//
// It evaluates and measures nothing itself, and nothing of it is in a product. It uses the programs
// and the public API as their users do.
//
// Invariant: it ends only processes that it started, or that its own agents started below its own
// directory, each by its ID.
package rig
