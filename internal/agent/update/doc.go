// Package update replaces a node's agent by another version of itself: it downloads a package,
// verifies and unpacks it, and executes its program in this process. The new version has to prove
// itself, otherwise the old one runs again.
//
// It does not decide when: the controller requests the update, and the agent reports when its work
// allows it. It does not touch VMs and installs nothing outside of the node's data directory; the
// program that was installed by other means, the base, is not changed.
//
// Invariant: at every moment the state file names a program that is complete and was verified, or
// none, which means the base. Therefore, whatever is killed, the next start of the base runs a
// version that works.
package update
