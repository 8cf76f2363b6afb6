// Package truthtable has the reference for the matcher: a table of packages with the vulnerability
// that a report must, or must not, show for each, written by hand from the advisories themselves;
// and a second matcher, naive and slow, that reads the same advisories with separate code. It is
// not part of any program, and its evaluation uses no code of the matcher or of the database.
//
// Invariant: a row cites the advisory and the field that decide it. A row is never adapted to the
// matcher's output; where a row is wrong, the change states why.
package truthtable
