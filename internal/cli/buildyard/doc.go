// Package buildyard is the operator's program: the services (up, controller,
// registry), the demo, and the commands of an operator.
//
// It is not the use cases: a service here reads its settings, wires the parts and
// listens.
//
// Invariant: a service is a type with ParseFlags, Run and Close, so that a test
// starts the very program that users run, on port 0.
package buildyard
