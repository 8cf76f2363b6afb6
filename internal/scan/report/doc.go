// Package report writes the result of a scan: as JSON, a table, SARIF, CycloneDX, SPDX, a report of GitLab, JUnit XML
// or by a template, and compares two reports.
//
// It does not decide what is affected or shown, and adds nothing to a report. It leaves nothing out but what exceeds
// the limits of a format, which the document counts.
//
// Invariant: the same report produces the same bytes in every format, except for the time and the
// number of a document where a format requires them.
package report
