// Package scan catalogs a source: it opens an image, a template of a registry or a directory, finds
// the file systems in it, and catalogs each of them in place.
//
// It does not match packages and writes no report; internal/scan/match and internal/scan/report do.
// It mounts, unpacks and starts nothing, and changes nothing.
//
// Invariant: each part of a source is either in its inventory or listed there as unreadable;
// nothing is left out silently.
package scan
