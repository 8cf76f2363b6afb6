// Package localtemplate stores the local templates of a node: disks with a configuration that their
// owner imported, created or pulled, and pushes to a registry.
//
// It is not the template cache, which belongs to the agent, and it does not start a template: no
// instance runs on a file of this store. The Images passed to it work on the images.
//
// Invariant: a template is listed only when it is complete; a killed command leaves nothing behind
// under the template's name.
package localtemplate
