//go:build !linux

package watch

// NetworkMounts returns the file systems of programs and of other machines, which may not answer.
// This system cannot list those without accessing them.
func NetworkMounts() ([]Mount, error) { return nil, nil }
