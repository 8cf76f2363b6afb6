// Package files is the registry's file server: small files that clients and nodes upload below files/ of its
// storage, and the logs of VMs that failed, below files/logs.
//
// It is not the store of layers and knows nothing of templates and HTTP. The central logs, which are in the
// same directory, can be read here but not written.
//
// Invariant: a file is complete or absent, no name and no link leads out of the directory, and no area uses the
// capacity of the other.
package files
