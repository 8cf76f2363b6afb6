// Command upgrade checks that an upgrade from an earlier commit works. It builds the programs of that
// commit and of the working tree, lets the old ones write data directories, runs nodes, and then
// starts the new ones on the same directories with the same settings.
//
// It uses the programs, the API and the Go packages `client` and `api` from outside only. It does
// not check behavior that both commits have in common: that is what the other suites do.
//
// Invariant: each case prints one line with its evidence, and a case that could not run because one
// before it failed counts as failed.
package main
