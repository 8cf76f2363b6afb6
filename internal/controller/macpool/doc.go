// Package macpool assigns MAC addresses of a managed list to instances.
//
// It excludes the choice of a node: an instance without an address is not placed. It does not know
// where reports of VMs come from: it asks its Orphans.
//
// Invariant: an address is in use by at most one instance, since its record must not exist when it
// is assigned, and leaves with that of the instance.
package macpool
