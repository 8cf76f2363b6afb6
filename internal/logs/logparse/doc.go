// Package logparse reads the level, the message and the fields of a row of the central logs: JSON and text as
// log/slog writes them, logfmt, the format of klog, events, and plain text.
//
// It does not read files and does not know which program wrote a row.
//
// Invariant: every text is accepted; what is not recognized is the message, and the number of fields, their
// depth and the work are bounded by constants and the length of the row.
package logparse
