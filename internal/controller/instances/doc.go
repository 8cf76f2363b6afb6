// Package instances has the records of instances as clients see and change them: lists, watches, updates,
// tasks and termination.
//
// It does not create instances, and does not place them: it decides what may change a record that
// exists.
//
// Invariant: an instance that was asked to terminate ends, whatever else it works on.
package instances
