// Package report writes what a scan found: as JSON, a table, SARIF, CycloneDX or SPDX,
// and tells what two reports have that the other has not.
//
// It is not what decides what is affected or shown; it adds nothing to a report and
// leaves nothing out.
//
// Invariant: the same report gives the same bytes in every format, but for the time and
// the number of a document where a format asks for them.
package report
