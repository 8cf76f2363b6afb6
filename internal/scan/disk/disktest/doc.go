// Package disktest writes partition tables and storages of registries for tests.
//
// It is no partitioning tool and no way to push: nothing is synced, and versions have no
// directories.
//
// Invariant: what it writes is well formed; tests spoil it themselves.
package disktest
