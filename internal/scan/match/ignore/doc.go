// Package ignore has the ignore rules of a configuration file: which findings its author accepts, why, and until when.
//
// It reads no files and finds no vulnerabilities: it only says which rule leaves a finding out at a place.
//
// Invariant: a rule without a reason, or without anything that it is about, is refused, and one that expired leaves
// nothing out.
package ignore
