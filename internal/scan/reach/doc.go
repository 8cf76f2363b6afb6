// Package reach decides which vulnerable functions are part of the Go programs that a scan found: an advisory names
// functions, and a program has a table of its functions.
//
// It does not know whether a function is ever called, and decides nothing about other packages than those of Go. It
// changes no finding but for its field Reachable.
//
// Invariant: a function is reported as not linked only after the whole table of the program was read; whatever cannot
// be read, or is named by no advisory, is unknown.
package reach
