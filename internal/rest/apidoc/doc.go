// Package apidoc serves the description of the API: api/openapi.yaml as it is, as JSON, and as a page for
// readers.
//
// It checks nothing itself: the file is the source, and test/contract compares the programs with the file.
//
// Invariant: the page is self-contained; it has no script and loads nothing from other addresses.
package apidoc
