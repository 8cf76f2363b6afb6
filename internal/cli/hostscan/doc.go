// Package hostscan is the program hostscan: the service that watches a host, and the commands
// that ask it.
//
// It is not the scanner (internal/scan/host) and not its API (internal/rest/hostrest): it
// reads settings and flags, and wires them.
//
// Invariant: standard output has the answer and nothing else; every command but serve asks a
// service that runs, and says how to start one when there is none.
package hostscan
