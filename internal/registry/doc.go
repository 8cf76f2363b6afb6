// Package registry holds the use cases of the template registry: list, detail,
// revert, delete, push by negotiation, parts and commit, pull by manifest, and the
// collection of what nobody needs any more.
//
// It is not HTTP (internal/rest/registryrest), not the format of layer files
// (internal/blob) and not the form of the directories (internal/layout).
//
// Invariant: one process owns a storage (flock), and every change of a template is
// one write of its template.json followed by one swap of the snapshot that readers
// see. Reads take no lock that a push, a pull or a collection holds over I/O.
package registry
