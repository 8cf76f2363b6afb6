// Package config is the settings of the services: one table per service says of
// every setting its key, flag, default, kind, help and check, and Load finds its
// value among flag, environment, file and default, in that order.
//
// It is not the meaning of a setting: the commands hand the values on, and nothing
// below them knows where a value came from. Nor does it hold settings that a
// program would ignore: one that is known but not built is refused at the start.
//
// Invariant: a Values exists only when every value in it has passed the form of
// its kind and its own check.
package config
