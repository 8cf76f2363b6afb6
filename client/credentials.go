package client

import "net/http"

// Credentials make requests the caller's own. One value may serve many clients and
// goroutines.
type Credentials interface {
	// Authorize puts what shows who calls on a request that is about to be sent. It may
	// make calls of its own within the request's context, for example to open a session,
	// and is called for every try.
	Authorize(r *http.Request) error
}

// RootToken is the credentials of the root user.
type RootToken string

var _ Credentials = RootToken("")

// Authorize implements Credentials.
func (t RootToken) Authorize(r *http.Request) error {
	r.SetBasicAuth("root", string(t))
	return nil
}

// String keeps the token out of logs.
func (t RootToken) String() string { return "root token" }

// GoString keeps the token out of logs.
func (t RootToken) GoString() string { return "client.RootToken(...)" }
