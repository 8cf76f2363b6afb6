// Package findings keeps which vulnerabilities scans found in versions of templates, and lists what a vulnerability
// affects: versions, nodes and instances.
//
// It does not scan and knows no advisory: scanners with a vulnerability database report IDs.
//
// Invariant: an instance is listed for a vulnerability if and only if its content is that of a listed version.
package findings
