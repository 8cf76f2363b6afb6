package rest

import "context"

// Door is what it takes to join at a port as a node besides what it takes at every port: the
// join token, or a caller who may.
type Door string

// The doors.
const (
	DoorGuarded   Door = ""          // nothing else will do
	DoorCertified Door = "certified" // so will a certificate of the port's own authority, which is for nodes
	DoorOpen      Door = "open"      // everybody may join
)

type doorKey struct{}

// WithDoor makes the context of a port: what the BaseContext of its http.Server gives. So no
// request carries anything for it.
func WithDoor(ctx context.Context, d Door) context.Context {
	return context.WithValue(ctx, doorKey{}, d)
}

// DoorOf gives the door by which a request has come in, by its context.
func DoorOf(ctx context.Context) Door {
	d, _ := ctx.Value(doorKey{}).(Door)
	return d
}
