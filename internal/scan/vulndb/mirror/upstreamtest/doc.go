// Package upstreamtest imitates the public sources of advisories on loopback, for tests: with their paths, forms,
// validators, ranges and checksums, and with the faults of servers and networks.
//
// It is not part of any program, and its advisories are invented.
//
// Invariant: without a fault every response is what the real source would send for the same content.
package upstreamtest
