// Command e2ehost uses the host scanner as it is meant to be used, with the real programs:
// a full scan, a look at it, a reset, real-time scanning, installs, a report, a decision.
//
//	SHARED=../shared go run ./test/e2ehost [-only REGEXP] [-json FILE] [-keep]
//
// While the service watches the whole host, package managers and archives bring packages of
// all nine kinds: npm, go, gem, pip, cargo, jar, dpkg-deb, tar, unzip, mv, cp and ln are run,
// and what no program here installs (kegs, applications, pods) is unpacked as Homebrew,
// Finder and CocoaPods leave it. What came is known from those programs' own lists and from
// the recipes, never from the scanner. Each package must stand in the report within 5 s of
// the last write of the file that tells of it, and nothing else may. A second service with
// nothing in its catalog scans the same in full, and must find the same.
//
// It is run as root: the system tells of every change then. The same is tried, smaller, as
// a user without privileges. Other directories of the machine are left out of the scans. Downloads
// are kept in the user's cache directory.
//
// Invariant: what cannot be tried - a program, a download or the shared data that is not
// there - counts as failed, and nothing that it started or mounted is left.
package main
