// Package format writes numbers, times and paths as pages show them.
//
// It is not the text of a page: it has no sentences and knows no resource.
//
// Invariant: a result depends on the arguments alone, never on the time, the time zone or the language of the host.
package format
