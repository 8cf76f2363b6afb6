// Package sbom reads the packages of a bill of materials: CycloneDX 1.2 to 1.7 and SPDX 2.2 and 2.3, both in JSON, of
// this program and of others. Sources of the formats: the specifications of CycloneDX, SPDX and package URLs, and what
// syft, trivy and cdxgen write.
//
// It evaluates nothing, and reads no vulnerabilities and no files that a document names.
//
// Invariant: documents are untrusted. Reading one takes memory in proportion to its size, which is bounded, and every
// component is a package, or is counted under a reason.
package sbom
