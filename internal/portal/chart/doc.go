// Package chart draws series and phases of the API as SVG, to be put into pages.
//
// It is not a library for charts: it has the lines, gaps and bars that the pages need. It reads nothing and knows no
// visitor.
//
// Invariant: what was not reported is a gap. No value is drawn that the API did not return.
package chart
