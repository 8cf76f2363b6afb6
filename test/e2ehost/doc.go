// Command e2ehost tests the intended use of the host scanner, with the real programs: a full scan,
// a status query, a reset, real-time scanning, installs, a report, a decision.
//
//	SHARED=../shared go run ./test/e2ehost [-only REGEXP] [-json FILE] [-keep]
//
// While the service watches the whole host, package managers and archives install packages of all
// nine kinds: npm, go, gem, pip, cargo, jar, dpkg-deb, tar, unzip, mv, cp and ln are run, and
// packages for which no program is available here (kegs, applications, pods) are unpacked as
// Homebrew, Finder and CocoaPods leave them. The expected packages come from those programs' own
// lists and from the recipes, never from the scanner. Each package must be in the report within 5 s
// of the last write of the file that describes it, and no other may be. A second service with an
// empty inventory does a full scan of the same files, and must find the same.
//
// It is run as root: the system then reports every change. A smaller version of the test is run as
// a user without privileges. Other directories of the machine are left out of the scans. Downloads
// are cached in the user's cache directory.
//
// Invariant: a test whose program, download or shared data is missing counts as failed, and nothing
// that it started or mounted is left.
package main
