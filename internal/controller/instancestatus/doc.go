// Package instancestatus applies what nodes report of instances to their records, and to those of the
// saves that they work on.
//
// It does not receive the reports, nor limit their pace: package nodelink does.
//
// Invariant: a report that comes late, twice or merged with others leads to the same records, and a
// save is pending exactly as long as its instance works on it.
package instancestatus
