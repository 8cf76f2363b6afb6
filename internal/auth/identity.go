package auth

import (
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Method is how a caller has authenticated.
type Method string

// The methods.
const (
	ByRoot        Method = "root"        // the root token
	ByKey         Method = "key"         // a session of an API key
	ByCertificate Method = "certificate" // a client certificate
	ByOIDC        Method = "oidc"        // a token of, or a login at, the identity provider
	ByNode        Method = "node"        // the credentials of a node
	ByLocal       Method = "local"       // the loopback port; Name is the user on whose behalf the call is, or ""
)

// Identity is an authenticated caller. It is created by the code that verified the credentials, and
// is immutable; the zero value is an unauthenticated caller.
type Identity struct {
	Name   string   // of the user, or the id of the node
	Groups []string // as they are now; not to be changed
	KeyID  string   // of the API key behind a session or a node; "" for none
	Method Method
	Root   bool      // the root user
	Ends   time.Time // when the log-in of a browser ends; zero: not known
	Scope  NodeScope // of a node: what it has been ordered to do, which is all that it may
}

// RootName is the name of the root user.
const RootName = "root"

// root is the identity of the root user.
var root = Identity{Name: RootName, Method: ByRoot, Root: true}

// deniedError returns a refusal of credentials. Callers do not see its reason, which is for logs.
func deniedError(reason string) *farm.Error {
	return &farm.Error{Code: farm.CodeUnauthenticated, Message: "Authentication Required", Err: denyReason(reason)}
}

// denyReason is the reason of a refusal.
type denyReason string

func (w denyReason) Error() string { return string(w) }
