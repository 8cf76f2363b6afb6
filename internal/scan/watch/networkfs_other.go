//go:build !linux

package watch

// IsNetworkFS returns the file systems that others answer for, and may not. This system does not
// say which those are without asking them.
func IsNetworkFS() ([]Mount, error) { return nil, nil }
