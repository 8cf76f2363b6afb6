// Package findings keeps which vulnerabilities scans found in versions of templates, and lists what a vulnerability
// affects: versions, nodes and instances.
//
// It does not scan and knows no advisory: scanners with a vulnerability database report what they found.
//
// Invariant: an instance that a caller asked for is listed for a vulnerability if and only if its template and content
// are those of a listed version.
package findings
