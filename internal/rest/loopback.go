package rest

import (
	"net"
	"net/http"
	"net/netip"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// Headers by which a program names the user it acts for: the user's name, and one line for each of the user's
// groups. Such a call is allowed if both the user and the program are allowed to make it. The name is not
// verified: limits and the audit use the program's credential.
const (
	UserHeader  = "X-Buildyard-User"
	GroupHeader = "X-Buildyard-Group"
	// ViaHeader marks calls of the controller, for a user or for itself. It changes only the wording of
	// refusals.
	ViaHeader = "X-Buildyard-Via"
)

// Loopback authenticates callers of a port for programs of this machine, which need no credentials.
type Loopback struct{}

var _ Identifier = Loopback{}

// Schemes implements Identifier.
func (Loopback) Schemes() []string { return nil }

// Identify implements Identifier. A web page in a browser on this machine must not get access by a name that
// resolves to it: the request's host must be this machine too.
func (Loopback) Identify(r *http.Request) (auth.Identity, error) {
	if !IsLoopbackRequest(r) || !isOwnHost(r.Host) {
		return auth.Identity{}, farm.Errorf(farm.CodeUnauthenticated, "Authentication Required")
	}
	return auth.LocalIdentity("", nil)
}

// Revalidate implements Identifier.
func (l Loopback) Revalidate(r *http.Request, _ auth.Identity) (auth.Identity, error) {
	return l.Identify(r)
}

// forwardedUser returns the user a program acts for; nil if it names none. Groups without one user name are refused.
func forwardedUser(r *http.Request) (*auth.Identity, error) {
	users, groups := r.Header[UserHeader], r.Header[GroupHeader]
	if len(users)+len(groups) == 0 {
		return nil, nil // no user is named
	}
	if len(users) != 1 || users[0] == "" {
		return nil, farm.Errorf(farm.CodeUnauthenticated, "Authentication Required")
	}
	who, err := auth.LocalIdentity(users[0], groups)
	return &who, err
}

// isOwnHost reports whether a request's host is this machine.
func isOwnHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// ForwardedUser returns the user that the controller names to the registry: the user that root acts for, or the caller.
func (c Caller) ForwardedUser() auth.Identity {
	if c.Root && c.ActsFor != nil {
		return *c.ActsFor
	}
	return c.Identity
}

// SetForwardedUser sets the user headers of a request to the registry from the caller in its context. The root user and
// anonymous callers are not named, but the user the root user acts for is. Only one user can be named: a caller
// other than root is named itself, even if it acts for a user.
func SetForwardedUser(out *http.Request) {
	out.Header.Del(UserHeader)
	out.Header.Del(GroupHeader)
	out.Header.Set(ViaHeader, string(farm.ServiceController))
	who := CallerOf(out.Context()).ForwardedUser()
	if who.Root || who.Method == "" {
		return
	}
	out.Header.Set(UserHeader, who.Name)
	for _, g := range who.Groups {
		out.Header.Add(GroupHeader, g)
	}
}
