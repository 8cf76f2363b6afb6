//go:build !linux && !darwin

package host

// lowerPriority would lower the priority of the goroutine.
func lowerPriority() {}
