// Package vulntext encodes found vulnerabilities as the text that records have, and finds IDs in it.
//
// It stores nothing.
//
// Invariant: Among finds a vulnerability by each of its IDs, whatever names of packages are in the text.
package vulntext
