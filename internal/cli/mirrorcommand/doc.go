// Package mirrorcommand is the command "buildyard registry mirror": it serves a mirror of a registry.
//
// It does not decide what a mirror serves or stores; package registrymirror does.
//
// Invariant: the directory is closed after the last request, so that an orderly end loses no layer.
package mirrorcommand
