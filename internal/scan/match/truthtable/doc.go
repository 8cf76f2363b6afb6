// Package truthtable holds what the matcher is measured by: a table of packages with the
// vulnerability that a report must, or must not, show for each, written by hand from the
// advisories themselves; and a second matcher, naive and slow, that reads the same
// advisories with code of its own. It is not part of any program, and nothing of the
// matcher or of the database is used by its evaluation.
//
// Invariant: a row cites the advisory and the field that decide it. A row is never bent to
// what the matcher says; where a row is wrong, the change says why.
package truthtable
