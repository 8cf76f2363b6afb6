// Package notify delivers the controller's events: to an HTTP endpoint of the operator's
// choice, or to the log server of a registry. It knows neither what events mean nor how long
// they are kept.
//
// Invariant: what Send says has arrived was answered with a 2xx, and events of one subject
// arrive in their order.
package notify
