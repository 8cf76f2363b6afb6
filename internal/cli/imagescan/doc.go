// Package imagescan is the program imagescan: it parses flags and the configuration
// file, checks the license, and lets the packages below internal/scan do the work.
//
// It is not the scanner: it knows no file system, no advisory and no version.
//
// Invariant: standard output has the report and nothing else; what could not be read is
// named on standard error and in the exit status, whatever was found.
package imagescan
