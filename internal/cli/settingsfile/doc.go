// Package settingsfile reads the configuration files of the scanners: one YAML document with known keys.
//
// It knows no key itself: a struct has them, with its tags. It does not check values beyond their form.
//
// Invariant: an error about the form names the line, the key, what is wrong with it and, where one is given, a line
// that is right.
package settingsfile
