// Package eventtext writes the events of the API as sentences, and groups equal ones of one minute.
//
// It is not a reader of events: it gets them, and the names of what they are about, from its caller.
//
// Invariant: each event is in one group, and the ID of a group does not change while events are added.
package eventtext
