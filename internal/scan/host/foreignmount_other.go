//go:build !linux

package host

// isForeignMount reports whether an unreadable directory is the mount of another user's file system. This
// system has none that root may not read.
func isForeignMount(string) bool { return false }

// probeMount does nothing on this system.
func probeMount(string) {}
