// Package logs sends the log of a program to the central logs of its cloud.
//
// It is not a logger and not the place where rows are kept (package central): it is a
// writer beneath a logger, which takes one line a call.
//
// Invariant: whoever logs never waits and never fails for it. What waits to be sent has
// a bound; beyond it the oldest lines are lost, are counted, and a row says how many.
package logs
