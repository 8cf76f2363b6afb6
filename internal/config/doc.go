// Package config is the settings of the services: one table per service defines the key, flag,
// default, kind, help and check of every setting, and Load finds its value among flag, environment,
// file and default, in that order.
//
// It does not interpret settings: the commands pass the values on, and no other package knows where
// a value came from. It has no settings that a program would ignore.
//
// Invariant: a Values exists only when every value in it has passed the form of its kind and its
// own check.
package config
