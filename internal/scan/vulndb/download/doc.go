// Package download fetches files of public servers: with conditional requests, resumed after an interruption, and
// tried again after failures that pass.
//
// It does not interpret what it fetches, and decides nothing about the files that a caller already has.
//
// Invariant: no URL is requested that is neither https nor on this machine, and no response is longer than its limit.
package download
