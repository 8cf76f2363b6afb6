//go:build !race

package lockorder

import "sync"

// Mutex is a sync.Mutex with a place in the order.
type Mutex[P Place] struct{ sync.Mutex }
