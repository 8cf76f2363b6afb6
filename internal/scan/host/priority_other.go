//go:build !linux && !darwin

package host

// yield would lower the priority of the goroutine.
func yield() {}
