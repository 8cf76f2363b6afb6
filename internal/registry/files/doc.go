// Package files is the registry's file server: small files that clients and nodes leave
// below files/ of its storage, and the logs of VMs that failed, below files/logs.
//
// It is not the store of layers and knows nothing of templates and HTTP. The central
// logs, which are in the same directory, can be read here and never written.
//
// Invariant: a file is there whole or not at all, no name and no link leads out of the
// directory, and what one area holds never takes the room of the other.
package files
