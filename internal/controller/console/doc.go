// Package console relays the screens of VMs: it carries messages between a viewer, whose connection
// a client opened, and the node of the VM, which connects when it is asked to.
//
// It excludes the transport, which its Conns carry out, and the decision who may view a screen.
// Nothing of it is stored.
//
// Invariant: a session is given to one node connection at most, and both ends of it end with its
// instance.
package console
