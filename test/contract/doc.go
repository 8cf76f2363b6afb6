// Command contract holds the programs to what their clients rely on: it starts the real
// controller, registry and nodes, sends them requests in the forms in which the clients of
// this API family send them, and compares every request and every answer with
// api/openapi.yaml.
//
// What is sent and expected is data, in cases/*.yaml; what needs more than requests is a
// scene, in Go. From the file itself follow the cases that break each of its parameters.
// It is not a test of the use cases: it sees the programs from outside only.
//
// Invariant: a run succeeds only when every route, every parameter of the file and every
// row of rows.txt was met by a case that must succeed and by one that must be refused.
// What counts for a parameter is what was sent, not what a case says of itself.
package main
