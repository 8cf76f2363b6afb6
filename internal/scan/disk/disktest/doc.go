// Package disktest writes partition tables and storages of registries for tests.
//
// It is not a partitioning tool and does not push: nothing is synced, and versions have no
// directories.
//
// Invariant: its output is well formed; tests damage it themselves.
package disktest
