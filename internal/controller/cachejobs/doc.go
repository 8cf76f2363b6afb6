// Package cachejobs has the cache jobs: requests that many nodes pull a version of a template ahead of
// need, or remove their cached versions of one.
//
// It does not reach the nodes: their sessions derive orders from the records, and write the results.
//
// Invariant: a cache job ends once, and as finished only when each of its nodes that still exists has
// a result.
package cachejobs
