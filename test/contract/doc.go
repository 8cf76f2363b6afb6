// Command contract checks the programs against what their clients rely on: it starts the real
// controller, registry and nodes, sends them requests in the forms in which the clients of this API
// family send them, and compares every request and every answer with api/openapi.yaml.
//
// What is sent and expected is data, in cases/*.yaml; what needs more than requests is a scene, in
// Go. The cases that break each of its parameters are derived from the file itself. It is not a
// test of the use cases: it uses the programs from outside only.
//
// Invariant: a run succeeds only when every route, every parameter of the file and every row of
// rows.txt was covered by a case that must succeed and by one that must be refused. What counts for
// a parameter is what was sent, not what a case claims.
package main
