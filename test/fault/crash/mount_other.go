//go:build !linux

package crash

import (
	"errors"
	"os"

	"github.com/buildyard/buildyard/test/rig"
)

// smallDisk makes an ordinary directory and returns that as an error.
func smallDisk(dir string, _ int) (_ string, unmount func() error, err error) {
	if err := rig.MakeDir(dir); err != nil {
		return dir, func() error { return nil }, err
	}
	return dir, func() error { return os.RemoveAll(dir) }, errors.New("small file systems are mounted on Linux only")
}
