// Package payloads has the large contents that records refer to: the startup scripts of instances, and
// the scripts of saves with their output.
//
// It does not have the records of instances and save requests, and does not run scripts: nodes do.
//
// Invariant: as long as an instance refers to a startup script, the script is in the store.
package payloads
