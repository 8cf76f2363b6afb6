// Package loadgen asks a controller for instances as the plugins of CI systems do: it
// creates, polls or watches, lists and terminates over the public API, at a set rate,
// and says how long the calls took and what went wrong.
//
// It knows a controller by its API only, judges nothing, and is for load and
// measurements: a real client wants the states that it skips.
//
// Invariant: a run ends every instance that it was given, also when it is broken off;
// what it could not end is counted.
package loadgen
