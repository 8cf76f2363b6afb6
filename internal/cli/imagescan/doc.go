// Package imagescan is the program imagescan: it parses flags and the configuration file, checks the
// license, and calls the packages below internal/scan.
//
// It excludes the scanner: it has no code for file systems, advisories or versions.
//
// Invariant: standard output has the report only; unreadable parts are listed on standard error and
// change the exit code, whatever was found.
package imagescan
