// Package templates has the templates of the registry as the callers of a controller may see and
// change them, and the version that a start gets.
//
// It does not store templates: the registry does. It keeps the last known state of those that starts
// need while the registry cannot be reached.
//
// Invariant: a caller gets and changes no template without the right that the registry grants for it.
package templates
