// Package events has the log of events and delivers it: to the log server of a registry, to an HTTP
// endpoint, or to both.
//
// It excludes the meaning of events for those who receive them. It writes no record but those of
// events and of their delivery.
//
// Invariant: an event is committed in the transaction of the change that it describes, and stays
// until every target has it or too many wait; events of one subject are delivered in order.
package events
