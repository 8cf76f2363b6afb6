package rest

import "context"

// JoinPolicy is what it takes to join at a port as a node besides what it takes at every port: the
// join token, or a caller who may.
type JoinPolicy string

// The doors.
const (
	DoorGuarded       JoinPolicy = ""          // nothing else will do
	JoinByCertificate JoinPolicy = "certified" // so will a certificate of the port's own authority, which is for nodes
	JoinOpen          JoinPolicy = "open"      // every caller may join
)

type doorKey struct{}

// WithJoinPolicy makes the context of a port: what the BaseContext of its http.Server gives. So no
// request carries anything for it.
func WithJoinPolicy(ctx context.Context, d JoinPolicy) context.Context {
	return context.WithValue(ctx, doorKey{}, d)
}

// JoinPolicyOf returns the door by which a request has come in, by its context.
func JoinPolicyOf(ctx context.Context) JoinPolicy {
	d, _ := ctx.Value(doorKey{}).(JoinPolicy)
	return d
}
