// Package apidoc serves the description of the API: api/openapi.yaml as it is, as JSON, and
// as a page that people read.
//
// It describes and checks nothing itself: the file is the source, and test/contract holds
// programs and file together.
//
// Invariant: the page needs nothing but itself; it has no script and asks no other address.
package apidoc
