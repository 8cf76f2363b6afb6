//go:build !linux

package disk

import "github.com/buildyard/buildyard/internal/blob"

// DropPageCache drops a range of a file from the page cache where the system supports it.
func DropPageCache(blob.File, int64, int64) {}
