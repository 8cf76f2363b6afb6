package rest

import (
	"net"
	"net/http"
	"net/netip"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// Headers by which a program says for whom it calls: the name of a user who is known there, and
// each of their groups on a line of its own. Such a call is allowed when it is to the user and to
// the program. Nobody has verified that name: limits and the audit go by the program's credential.
const (
	UserHeader  = "X-Buildyard-User"
	GroupHeader = "X-Buildyard-Group"
	// ViaHeader says that the controller makes the call, be it for a user or for itself. It changes how refusals
	// are worded and nothing else.
	ViaHeader = "X-Buildyard-Via"
)

// Loopback knows the callers of a port for programs of this machine, which need no credentials.
type Loopback struct{}

var _ Identifier = Loopback{}

// Schemes implements Identifier.
func (Loopback) Schemes() []string { return nil }

// Identify implements Identifier. A page of the web that a browser on this machine shows must
// not get in by a name that leads here: the request's host must be this machine too.
func (Loopback) Identify(r *http.Request) (auth.Identity, error) {
	if !IsLoopbackRequest(r) || !isHere(r.Host) {
		return auth.Identity{}, farm.Errorf(farm.CodeUnauthenticated, "Authentication Required")
	}
	return auth.Local("", nil)
}

// Revalidate implements Identifier.
func (l Loopback) Revalidate(r *http.Request, _ auth.Identity) (auth.Identity, error) {
	return l.Identify(r)
}

// actedFor returns the user for whom a program makes a request; nil when it names none. A user
// whose name was lost on the way is nobody.
func actedFor(r *http.Request) (*auth.Identity, error) {
	users, groups := r.Header[UserHeader], r.Header[GroupHeader]
	if len(users)+len(groups) == 0 {
		return nil, nil // nobody is named
	}
	if len(users) != 1 || users[0] == "" {
		return nil, farm.Errorf(farm.CodeUnauthenticated, "Authentication Required")
	}
	who, err := auth.Local(users[0], groups)
	return &who, err
}

// isHere reports whether a request's host is this machine.
func isHere(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// Named returns the user for whom the controller asks the registry: whom the root user calls for, or the caller.
func (c Caller) Named() auth.Identity {
	if c.Root && c.For != nil {
		return *c.For
	}
	return c.Identity
}

// ActFor says on a request to the registry for whom it is made: the caller of the request whose
// context it has. The root user, who may do everything, and nobody are not named; but whom the root
// user calls for is. One user can be named: another than root stays it, whoever they call for.
func ActFor(out *http.Request) {
	out.Header.Del(UserHeader)
	out.Header.Del(GroupHeader)
	out.Header.Set(ViaHeader, string(farm.ServiceController))
	who := CallerOf(out.Context()).Named()
	if who.Root || who.Method == "" {
		return
	}
	out.Header.Set(UserHeader, who.Name)
	for _, g := range who.Groups {
		out.Header.Add(GroupHeader, g)
	}
}
