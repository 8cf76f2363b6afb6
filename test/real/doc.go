// Command real scans systems that package managers made of real packages, and compares the reports with the changelogs
// of these packages.
//
//	go run ./test/real -tools DIR [-shared DIR] [-only REGEXP] [-keep]
//
// A Debian system is made of packages that the archive offers in two versions, of packages of languages and of parts of
// a desktop: once with the oldest versions, and upgraded to the newest. Systems of RPM and apk are made of packages
// that are built with the same histories. A vulnerability that a package's changelog names is fixed in it and must not
// be reported. One that only the entries of the newer package name must be reported in the older system. The advisories
// are written from the changelogs in the forms in which distributions publish them.
//
// It does not test whether changelogs are right: a name in an entry counts as a fix, whatever the text around it says.
//
// Invariant: the truth is from changelogs and package managers alone, never from the scanner; a run that measures fewer
// packages or vulnerabilities than required fails.
package main
