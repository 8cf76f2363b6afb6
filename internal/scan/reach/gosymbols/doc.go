// Package gosymbols lists the functions that are part of a Go program, by the table of names that the program needs at
// run time. The linker writes all functions there, and those that were inlined everywhere. The table stays when a
// program is stripped of its symbols.
//
// It does not know which function calls which, and does not disassemble. The tables of programs before Go 1.18 are not
// read.
//
// Invariant: memory does not depend on the size of a program; a table that cannot be read whole is an error, also when
// functions were listed before.
package gosymbols
