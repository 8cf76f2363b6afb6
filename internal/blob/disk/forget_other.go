//go:build !linux

package disk

import "github.com/buildyard/buildyard/internal/blob"

// Forget makes the system drop what it keeps in memory of a range of a file, where it can be told to.
func Forget(blob.File, int64, int64) {}
