// Package saves has the requests to save an instance as a version of a template: what is checked before
// one is accepted, the requests themselves, and when they are removed.
//
// It does not carry out a save: the instance gets a task, and its node reports the progress.
//
// Invariant: a request and the task of its instance are written together, so that neither exists
// without the other.
package saves
