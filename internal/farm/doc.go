// Package farm is the domain of Buildyard: the records of a build cloud (instances, nodes, groups,
// templates, save requests, events), their state transition tables, and the closed set of error
// codes.
//
// It is not storage, transport or policy: nothing here reads a clock, a file or a socket, and it
// imports the standard library only.
//
// Invariant: every change of a state goes through a transition table of this package, so that no
// other part can invent a state or an edge.
package farm
