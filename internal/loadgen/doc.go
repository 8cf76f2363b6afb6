// Package loadgen requests instances from a controller as the plugins of CI systems do: it creates,
// polls or watches, lists and terminates over the public API, at a set rate, and reports the
// latencies and errors of the calls.
//
// It uses a controller only through its API, does not evaluate the results, and is for load and
// measurements: a real client needs the states that it skips.
//
// Invariant: a run terminates every instance that it received, also when it is interrupted; it
// counts those that it could not terminate.
package loadgen
