//go:build !linux && !darwin

package catalog

import (
	"io"
	"io/fs"
)

const nonBlocking = 0

func openDir(name string) (fs.FS, io.Closer, error) { return openOSRoot(name, nil, nil) }
