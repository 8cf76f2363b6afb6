// Package agentupdate decides which nodes install another version of their agent, and when: on the
// request of an operator, or automatically when a newer package is there.
//
// It excludes the packages themselves, and their way to the node: package nodelink offers an update to
// its node, and records what the node reports of it.
//
// Invariant: at most a tenth of the nodes update at a time without a request; the others take new
// instances.
package agentupdate
