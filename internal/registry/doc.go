// Package registry implements the use cases of the template registry: list, detail, revert, delete, push by
// negotiation, parts and commit, pull by manifest, and garbage collection.
//
// It is not HTTP (internal/rest/registryrest), not the format of layer files (internal/blob) and not the layout
// of the directories (internal/layout).
//
// Invariant: one process owns a storage (flock), and every change of a template is one write of its
// template.json followed by one swap of the snapshot that readers see. Reads take no lock that a push, a pull
// or a collection holds over I/O.
package registry
