// Package update makes a node's agent another version of itself: it loads a package,
// verifies and unpacks it, and has this process become the program in it, which has to
// prove itself or makes room for the old one again.
//
// It decides nothing about when: the controller asks, and the agent says when its work
// allows it. It touches no VM and installs nothing outside of the node's data directory;
// the program that is installed by other means, the base, stays as it is.
//
// Invariant: at every moment the file of the state names a program that is whole and was
// verified, or none, which means the base. So whatever is killed, the next start of the
// base runs a version that works.
package update
