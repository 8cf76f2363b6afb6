//go:build !linux

package host

// foreign reports whether an unreadable directory is the mount of another user's file system. This
// system has none that root may not read.
func foreign(string) bool { return false }

// probe does nothing on this system.
func probe(string) {}
