// Package admission limits what callers may have in the store: pending instances, their scripts, and
// save requests.
//
// It does not limit the rate of requests: that is of the REST API.
//
// Invariant: what a caller has is the sum of the records and of the requests that are being written, so
// that it is right after a restart and in every replica.
package admission
