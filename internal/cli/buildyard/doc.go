// Package buildyard is the program buildyard: the services (up, controller, registry), the demo, and
// the commands of clients and operators.
//
// It does not contain use cases: a service reads its settings, wires the parts and listens.
//
// Invariant: a service is a type with ParseFlags, Run and Close, so that a
// test can start the program on port 0.
package buildyard
