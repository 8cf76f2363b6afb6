//go:build !failpoint

package buildyard

import "github.com/buildyard/buildyard/internal/registry"

// injectFaults changes nothing: see the file for builds with failpoints.
func injectFaults(*registry.Options) error { return nil }
