// Package crash ends a registry's process before each step that changes its storage, fills its disk
// there, and flips bits in transfers, and compares what was acknowledged with what can be pulled
// afterwards.
//
// The processes are real: the program is built with the tag "failpoint", which has it do at a step
// what package inject describes, and everything goes through the client that nodes use. The steps
// are those that package failpoint reads from the sources.
//
// It does not choose at random: each operation is tried at the first and the last time that it
// comes to each of its steps.
//
// Invariant: a step that no operation came to is in the report, with a reason or as a failure.
package crash
