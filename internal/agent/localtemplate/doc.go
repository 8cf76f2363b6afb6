// Package localtemplate keeps the local templates of a node: disks with a configuration
// that their owner imported, created or pulled, and pushes to a registry.
//
// It is not the template cache, which belongs to the agent, and it starts no Template:
// what an instance runs on is never a file of the library. Work on images is done by
// the Images it is given.
//
// Invariant: a template is listed only when it is whole; whatever is killed in
// between leaves nothing behind under its name.
package localtemplate
