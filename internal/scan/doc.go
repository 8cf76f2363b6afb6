// Package scan catalogs of a source: it opens an image, a template of a registry or a
// directory, finds the file systems in it, and has each of them catalogd where it lies.
//
// It does not judge packages and writes no report; internal/scan/match and
// internal/scan/report do. It mounts, unpacks and starts nothing, and changes nothing.
//
// Invariant: what is in a source is either in its inventory or named there as what could
// not be read; nothing is left out in silence.
package scan
