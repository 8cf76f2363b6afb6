// Package report writes the result of a scan: as JSON, a table, SARIF, CycloneDX or SPDX, and
// compares two reports.
//
// It does not decide what is affected or shown; it adds nothing to a report and leaves nothing out.
//
// Invariant: the same report produces the same bytes in every format, except for the time and the
// number of a document where a format requires them.
package report
