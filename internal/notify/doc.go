// Package notify delivers the controller's events: to an HTTP endpoint that the operator
// configures, or to the log server of a registry. It knows neither the meaning of events nor how
// long they are stored.
//
// Invariant: an event that Send reports as delivered was answered with a 2xx, and events of one
// subject are delivered in order.
package notify
