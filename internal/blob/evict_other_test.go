//go:build !linux

package blob

import (
	"os"
	"testing"
)

// dropCache does nothing here: this system has no call that removes a file from its cache.
func dropCache(testing.TB, *os.File) {}
