// Package match finds the known vulnerabilities of packages, by the records of a database: language
// packages by the advisories of their ecosystem, Homebrew by its own and by products, macOSPlatform
// applications and pods by products.
//
// It does not find packages and reads no feeds: internal/scan/catalog and internal/scan/vulndb do.
// It writes no report, and uses three queries of a database.
//
// Invariant: one source decides on a vulnerability of a package, by a fixed precedence; a version
// that cannot be compared is listed as not evaluated, never guessed; equal input gives equal
// findings in equal order.
package match
