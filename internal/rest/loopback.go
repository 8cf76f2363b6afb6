package rest

import (
	"net"
	"net/http"
	"net/netip"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// Headers by which a program of this machine says for whom it calls the loopback port: the name
// of a user who is logged in there, and each of their groups on a line of its own.
const (
	UserHeader  = "X-Buildyard-User"
	GroupHeader = "X-Buildyard-Group"
)

// Loopback knows the callers of a port for programs of this machine, which need no credentials.
type Loopback struct{}

var _ Identifier = Loopback{}

// Schemes implements Identifier.
func (Loopback) Schemes() []string { return nil }

// Identify implements Identifier. A page of the web that a browser on this machine shows must
// not get in by a name that leads here: the request's host must be this machine too.
func (Loopback) Identify(r *http.Request) (auth.Identity, error) {
	if !FromHere(r) || !isHere(r.Host) {
		return auth.Identity{}, farm.Errorf(farm.CodeUnauthenticated, "Authentication Required")
	}
	users := r.Header[UserHeader]
	if len(users) > 1 {
		return auth.Identity{}, farm.Errorf(farm.CodeUnauthenticated, "Authentication Required")
	}
	name := ""
	if len(users) == 1 {
		name = users[0]
	}
	if name == "" && len(users)+len(r.Header[GroupHeader]) > 0 { // a user whose name was lost is not the program itself
		return auth.Identity{}, farm.Errorf(farm.CodeUnauthenticated, "Authentication Required")
	}
	return auth.Local(name, r.Header[GroupHeader])
}

// isHere says whether a request's host is this machine.
func isHere(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}
