package rest

import "context"

// JoinPolicy describes which clients may join as nodes at a port, in addition to those with the join token or
// the permission, which may join at every port.
type JoinPolicy string

// The join policies.
const (
	DoorGuarded       JoinPolicy = ""          // no other clients
	JoinByCertificate JoinPolicy = "certified" // also clients with a node certificate of the port's authority
	JoinOpen          JoinPolicy = "open"      // every caller may join
)

type joinPolicyKey struct{}

// WithJoinPolicy returns the context of a port, for the BaseContext of its http.Server, so that requests need
// no context value for it.
func WithJoinPolicy(ctx context.Context, d JoinPolicy) context.Context {
	return context.WithValue(ctx, joinPolicyKey{}, d)
}

// JoinPolicyOf returns the policy of the port of a request, by its context.
func JoinPolicyOf(ctx context.Context) JoinPolicy {
	d, _ := ctx.Value(joinPolicyKey{}).(JoinPolicy)
	return d
}
