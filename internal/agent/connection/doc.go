// Package connection records when a node last reached each controller URL, and why the last attempt that
// failed did, so that the status command can show it while no controller answers.
//
// It does not connect and does not choose a controller: package controllers does.
//
// Invariant: the record has no credential and no answer of a controller, and is written rarely: when the
// outcome changes, else at most once a minute.
package connection
