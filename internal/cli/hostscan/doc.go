// Package hostscan is the program hostscan: the service that scans a host, and the commands that call
// its API.
//
// It excludes the scanner (internal/scan/host) and its API (internal/rest/hostrest): it reads settings
// and flags, and wires them.
//
// Invariant: standard output has the result and nothing else; every command but serve calls a
// running service, and explains how to start one when there is none.
package hostscan
