// Package runner is the main function of the benchmarks: flags, working directory, time limits, parts and
// their failures, and the report.
//
// It neither knows what is measured nor has targets: those are rows of package row.
//
// Invariant: a run ends well only when every requested row was measured and nothing was left behind.
package runner
