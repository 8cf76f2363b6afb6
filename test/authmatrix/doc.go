// Command authmatrix calls every route of both services as every kind of caller, and compares each
// response with the tables of the specification and the contract.
//
//	go run ./test/authmatrix [-only REGEXP] [-json FILE] [-keep]
//
// The rows are the routes that the services really have, an unknown path and a wrong method; the
// columns are callers: unauthenticated ones, the root user, API keys without the permission of the
// row, with it alone and with all others, certificates, nodes, expired and broken credentials, and
// so on. It is done in several arrangements: both services in one process or apart, authentication
// on for both or one, permissions on or off, each tier of the license. Requests are such that a
// handler which they reach changes nothing.
//
// What is expected does not come from the programs: the tables here were typed from the printed
// ones. In addition to the matrix there are cases that fit no table (handshakes, deleted keys,
// licenses that end), and at the end every log is searched for every secret that was used.
//
// Invariant: a run succeeds only when every route of the services is in the tables, every planned
// cell was tried, none had another response than expected, and no log contains a secret.
package main
